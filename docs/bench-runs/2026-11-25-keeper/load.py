import os,sys,signal
m,i=sys.argv[1],sys.argv[2]
stop=[0]
signal.signal(signal.SIGTERM,lambda *a: stop.__setitem__(0,1))
d=f'{m}/load{i}'; os.makedirs(d,exist_ok=True); n=0
while not stop[0]:
    try:
        p=f'{d}/{n%5000}'
        fd=os.open(p,os.O_CREAT|os.O_RDWR); os.close(fd); os.stat(p); os.rename(p,p+'x'); os.unlink(p+'x'); n+=1
    except OSError as e:
        print('load error',e,flush=True); sys.exit(1)
