"""A proxy that answers each request of HTTP so many milliseconds later: delay.py PORT TARGET MS"""
import asyncio
import sys

port, target, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000


async def copy(reader, writer, is_answer):
    try:
        while data := await reader.read(1 << 18):
            # The first bytes of an answer wait; the rest follows them.
            if is_answer and waiting[writer]:
                waiting[writer] = False
                await asyncio.sleep(delay)
            if not is_answer:
                waiting[peer[writer]] = True
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


waiting, peer = {}, {}


async def serve(reader, writer):
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", target)
    waiting[writer], peer[up_writer] = False, writer
    await asyncio.gather(copy(reader, up_writer, False), copy(up_reader, writer, True))
    waiting.pop(writer, None), peer.pop(up_writer, None)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


asyncio.run(main())
