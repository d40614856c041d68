# What a program does with open files, processes and threads.
import os, mmap, fcntl, select, signal, socket, subprocess, sys, tempfile, threading, errno, shutil
for n in range(8): open(f'f{n}', 'w').write(str(n))
def err(call, *args):
    try: return call(*args)
    except OSError as e: return errno.errorcode[e.errno]
print([os.stat(f'f{n}').st_size for n in range(8)], err(os.stat, 'none'), err(os.mkdir, 'f1'), err(os.rmdir, 'f1'))
fd = os.open('pos', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
print(os.write(fd, b'0123456789'), os.lseek(fd, 2, 0), os.read(fd, 3), os.lseek(fd, 0, 1))
two = os.dup(fd); print(os.read(two, 2), os.lseek(fd, 0, os.SEEK_CUR), os.fstat(two).st_size)
high = fcntl.fcntl(fd, fcntl.F_DUPFD, 50); os.lseek(high, 1, 0); print(high, os.read(fd, 1)); os.close(high)
print(os.pread(fd, 4, 3), os.pwrite(fd, b'xy', 12), os.readv(fd, [bytearray(2), bytearray(1)]), os.fstat(fd).st_size)
pid = os.fork()
if pid == 0:
    os.lseek(fd, 5, 0); os.write(fd, b'child'); os._exit(0)
os.waitpid(pid, 0); print(os.lseek(fd, 0, 1), os.pread(fd, 20, 0)); os.close(two)
m = mmap.mmap(fd, 14); m[0:2] = b'MM'; m.flush(); print(os.pread(fd, 4, 0), open('pos', 'rb').read()); m.close(); os.close(fd)
fd = os.open('app', os.O_WRONLY | os.O_CREAT | os.O_APPEND); os.write(fd, b'a'); os.pwrite(fd, b'b', 0); os.write(fd, b'c'); print(os.lseek(fd, 0, 1)); os.close(fd)
print(open('app').read(), err(os.open, 'app', os.O_CREAT | os.O_EXCL), err(os.open, '.', os.O_WRONLY), err(os.open, 'f1/x', 0))
os.symlink('f1', 'ln'); print(err(os.open, 'ln', os.O_NOFOLLOW), os.read(os.open('ln', 0), 5), err(os.open, 'f1', os.O_DIRECTORY))
os.symlink('/', 'root'); print(os.path.isdir('root/proc'), err(os.stat, 'root/none'), os.stat('../' + os.path.basename(os.getcwd())).st_ino == os.stat('.').st_ino)
d = os.open('.', os.O_RDONLY); print(sorted(os.listdir(d))[:3], os.stat('f3', dir_fd=d).st_size, err(os.stat, 'none', ) ); os.mkdir('sub', dir_fd=d); os.rename('f0', 'sub/f0', src_dir_fd=d, dst_dir_fd=d)
os.fchdir(d); print(os.path.exists('sub/f0')); os.chdir('sub'); print(os.listdir('.'), os.path.exists('../f1')); os.chdir('..'); os.close(d)
gone = os.open('gone', os.O_RDWR | os.O_CREAT); os.write(gone, b'still'); os.unlink('gone'); print(os.pread(gone, 9, 0), os.fstat(gone).st_nlink, os.path.exists('gone')); os.close(gone)
over = os.open('f2', os.O_RDONLY); os.replace('f3', 'f2'); print(os.read(over, 9), open('f2').read()); os.close(over)
os.umask(0o027); os.close(os.open('masked', os.O_CREAT | os.O_WRONLY, 0o777)); print(oct(os.stat('masked').st_mode)); os.umask(0o022)
os.truncate('f4', 100); print(os.path.getsize('f4')); os.utime('f5', (1, 2)); print(os.stat('f5').st_mtime); os.setxattr('f5', 'user.k', b'v'); print(os.listxattr('f5'), os.getxattr('f5', 'user.k'), err(os.getxattr, 'f5', 'user.none'))
with open('poll', 'w') as f: print(select.select([], [f], [], 0)[1] == [f], fcntl.flock(f, fcntl.LOCK_EX), f.isatty(), f.seekable())
a, b = socket.socketpair(); f = open('f1'); socket.send_fds(a, [b'x'], [f.fileno()]); print(os.read(socket.recv_fds(b, 1, 1)[1][0], 9))
with open('inherit', 'w') as f: subprocess.run(['sh', '-c', 'echo child; echo $0', 'arg'], stdout=f); f.write('parent'); f.flush()
print(open('inherit').read(), subprocess.check_output(['cat', 'f1', 'f5']))
def work(n):
    for i in range(40):
        with open(f'th{n}', 'a') as f: f.write(f'{i}\n')
        os.stat(f'th{n}'); open(f'th{n}').read()
ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]
print([len(open(f'th{n}').read()) for n in range(4)])
log = os.open('log', os.O_WRONLY | os.O_CREAT)
signal.signal(signal.SIGALRM, lambda *_: os.write(log, b'alarm')); signal.raise_signal(signal.SIGALRM); print(open('log').read()); os.close(log)
shutil.copytree('.', '../' + os.path.basename(os.getcwd()) + '/tree/copy', symlinks=True, ignore=shutil.ignore_patterns('tree')); print(len(os.listdir('tree/copy'))); shutil.rmtree('tree')
with os.scandir('.') as it: print(sorted((e.name, e.is_dir(), e.stat(follow_symlinks=False).st_size) for e in it if not e.is_dir())[:5])
fd = os.open('holes', os.O_RDWR | os.O_CREAT); os.pwrite(fd, b'x' * 10, 1 << 20); print(os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_END)); os.ftruncate(fd, 5); os.fsync(fd); print(os.pread(fd, 9, 0)); os.close(fd)
for n in range(3, 256):
    try: os.close(n)
    except OSError: pass
print(open('f1').read(), sorted(os.listdir('.'))[:4])
os.chdir(os.path.dirname(os.getcwd()) + '/' + os.path.basename(os.getcwd()))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.dprintf.argtypes = [ctypes.c_int, ctypes.c_char_p]
fd = os.open('dprintf', os.O_WRONLY | os.O_CREAT)
libc.dprintf(fd, b'%d %s %.2f\n', ctypes.c_int(7), b'seven', ctypes.c_double(7.25)); os.close(fd)
print(open('dprintf').read())
fd = os.open('by-name', os.O_RDWR | os.O_CREAT); os.write(fd, b'abc'); print(open(f'/proc/self/fd/{fd}').read()); os.chmod(f'/dev/fd/{fd}', 0o640)
print(oct(os.fstat(fd).st_mode), os.stat('by-name').st_size, oct(os.stat('/dev/null').st_mode)); os.close(fd)
kernel = os.open('/dev/null', os.O_WRONLY); fd = os.open('twice', os.O_WRONLY | os.O_CREAT); os.dup2(fd, kernel); os.write(kernel, b'1'); os.write(fd, b'2'); print(open('twice').read())
