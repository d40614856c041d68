# SQLite, git, fs_mark, fio with checksums on a mount whose server is killed: programs.py MOUNT SHOAL SECONDS
import json,os,sqlite3,subprocess,sys,threading,time
m,shoal,seconds=sys.argv[1],sys.argv[2],float(sys.argv[3])
end=time.time()+seconds; failed=[]; done={}
def server():
    k=int(json.loads(subprocess.run([shoal,'info',m,'--json'],capture_output=True,text=True).stdout)['server'])
    kids=open(f'/proc/{k}/task/{k}/children').read().split()
    return int(kids[-1]) if kids else None
def killer():
    n=0
    while time.time()<end:
        time.sleep([0.2,0.04,0.5,0.1][n%4])
        s=server()
        if s: os.kill(s,9); n+=1
    done['kills']=n
def run(name,*c):
    p=subprocess.run(c,capture_output=True,text=True)
    if p.returncode: failed.append((name,p.stdout[-500:],p.stderr[-500:])); raise SystemExit
    return p.stdout
def sqlite(mode):
    path=f'{m}/sqlite-{mode}.db'; n=0
    try:
        db=sqlite3.connect(path,timeout=60); db.execute(f'pragma journal_mode={mode}'); db.execute('create table t(n integer primary key, x blob)')
        while time.time()<end:
            with db: db.executemany('insert into t values(?,?)',[(n*10+i,os.urandom(500)) for i in range(10)])
            n+=1
            if n%50==0: db.execute('delete from t where n%3=0'); db.commit()
        ok=db.execute('pragma integrity_check').fetchone()[0]; last=db.execute('select max(n) from t').fetchone()[0]
        if ok!='ok' or last<(n-1)*10: failed.append((path,ok,last,n))
        db.close()
    except Exception as e: failed.append((path,repr(e)))
    done['sqlite '+mode]=n
def git():
    d=f'{m}/repo'; n=0
    run('git','git','init','-q',d)
    g=['git','-C',d,'-c','user.name=a','-c','user.email=a@b']
    while time.time()<end:
        for i in range(5): open(f'{d}/f{(n*7+i)%97}','w').write(str(n)*50)
        run('git',*g,'add','-A'); run('git',*g,'commit','-qm',str(n),'--allow-empty'); n+=1
        if n%40==0: run('git',*g,'gc','-q')
    run('git',*g,'fsck','--strict')
    if int(run('git',*g,'rev-list','--count','HEAD'))!=n: failed.append(('git commits',n))
    done['git commits']=n
def fsmark():
    n=0
    while time.time()<end:
        run('fs_mark','fs_mark','-d',f'{m}/fsm','-s','1000','-n','500','-t','2','-S','0'); run('rm','rm','-rf',f'{m}/fsm'); n+=1
    done['fs_mark rounds']=n
def fio():
    n=0
    while time.time()<end:
        run('fio','fio','--name=v','--directory='+m,'--rw=randwrite','--bs=4k','--size=16m','--verify=crc32c','--do_verify=1','--verify_fatal=1','--output=/dev/null',*(['--ioengine=mmap'] if n%2 else [])); os.unlink(f'{m}/v.0.0'); n+=1
    done['fio rounds']=n
ts=[threading.Thread(target=f,args=a) for f,a in [(killer,()),(sqlite,('wal',)),(sqlite,('delete',)),(git,()),(fsmark,()),(fio,())]]
[t.start() for t in ts]; [t.join() for t in ts]
print(done); print('failed',failed)
