# Pauses over kills: a mount in use, two creators, a prober; arguments: mount, volume, shoal, kills
import os,sys,time,subprocess,threading,signal,json
m,shoal,kills=sys.argv[1],sys.argv[2],int(sys.argv[3])
def keeper():
    out=subprocess.run([shoal,'info',m,'--json'],capture_output=True,text=True).stdout
    return int(json.loads(out)['server'])
def server(k):
    kids=open(f'/proc/{k}/task/{k}/children').read().split()
    return int(kids[-1]) if kids else None
stop=False; worst=0.0; calls=0; errors=0
def prober():
    global worst,calls,errors
    n=0
    while not stop:
        t=time.perf_counter()
        try:
            fd=os.open(f'{m}/probe{n%100}',os.O_CREAT|os.O_RDWR); os.write(fd,b'x'); os.close(fd); os.stat(f'{m}/probe{n%100}'); os.unlink(f'{m}/probe{n%100}')
        except OSError as e:
            errors+=1; print('error',e,flush=True)
        d=time.perf_counter()-t
        worst=max(worst,d); calls+=5; n+=1
def stats():
    out=subprocess.run([shoal,'stats',m,'--json'],capture_output=True,text=True).stdout
    return sum(o['count'] for o in json.loads(out)['operations'].values())
k=keeper()
load=[subprocess.Popen([sys.executable,sys.argv[0].replace('probe','load'),m,str(i)]) for i in range(2)]
t=threading.Thread(target=prober); t.start()
time.sleep(2)
pauses=[]
for r in range(kills):
    a=stats(); time.sleep(1); b=stats()
    worst=0.0
    os.kill(server(k),9)
    time.sleep(1.5)
    pauses.append((worst*1000, b-a))
stop=True; t.join()
for p in load: p.terminate()
codes=[p.wait() for p in load]
ps=sorted(p for p,_ in pauses)
print('pauses ms',[round(p) for p,_ in pauses],'ops/s before',[o for _,o in pauses])
print('median',round(ps[len(ps)//2]),'max',round(ps[-1]),'errors',errors,'load',codes)
