// A TCP connection that can be cut and restored, on a free port of loopback.
import { connect as dial, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

export interface Cable {
  port: number;
  cut: () => Promise<void>;
  /** Connections are taken and nothing is ever said on them, also after it is restored: as with a console that is stopped. */
  hang: () => Promise<void>;
  restore: () => Promise<void>;
}

export async function connect(to: URL): Promise<Cable> {
  const open = new Set<Socket>();
  const hung = new Set<Socket>();
  let hangs = false;
  let server: Server | null = null;
  const listen = (port: number) =>
    new Promise<number>((done, failed) => {
      server = createServer((near) => {
        if (hangs) {
          hung.add(near.on('error', () => {}).resume());
          return;
        }
        const far = dial(Number(to.port || 80), to.hostname);
        for (const [one, other] of [[near, far], [far, near]] as const) {
          open.add(one);
          one.on('error', () => other.destroy());
          one.on('close', () => {
            open.delete(one);
            other.destroy();
          });
          one.pipe(other);
        }
      });
      server.on('error', failed);
      server.listen(port, '127.0.0.1', () => done((server!.address() as AddressInfo).port));
    });
  const port = await listen(0);
  const cut = async () => {
    const closing = server;
    server = null;
    const closed = new Promise<void>((done) => (closing ? closing.close(() => done()) : done()));
    for (const socket of [...open, ...hung]) socket.destroy();
    await closed;
  };
  const restore = async (silent: boolean) => {
    hangs = silent;
    // What hangs goes on hanging: only new connections are better.
    if (!server) await listen(port);
  };
  return {
    port,
    cut,
    hang: async () => {
      await cut();
      await restore(true);
    },
    restore: () => restore(false),
  };
}
