// A TCP connection that can be cut and restored, on a free port of loopback.
import { connect as dial, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

export interface Cable {
  port: number;
  cut: () => Promise<void>;
  restore: () => Promise<void>;
}

export async function connect(to: URL): Promise<Cable> {
  const open = new Set<Socket>();
  let server: Server | null = null;
  const listen = (port: number) =>
    new Promise<number>((done, failed) => {
      server = createServer((near) => {
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
  return {
    port,
    cut: async () => {
      const closing = server;
      server = null;
      const closed = new Promise<void>((done) => (closing ? closing.close(() => done()) : done()));
      for (const socket of open) socket.destroy();
      await closed;
    },
    restore: async () => void (await listen(port)),
  };
}
