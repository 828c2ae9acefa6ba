/** Makes a ZIP archive of files in the browser, for folders that are dropped on a page. */

export interface NamedFile {
  path: string;
  file: Blob;
}

// Folders that no site needs, and that may be huge.
const LEFT_OUT = /(^|\/)(\.git|node_modules|\.DS_Store|__pycache__|\.venv)(\/|$)/;
const TABLE = Uint32Array.from({ length: 256 }, (_, number) => {
  let value = number;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});
const UTF8_NAMES = 0x0800;
const DEFLATED = 8;

export function crc32(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ TABLE[(value ^ byte) & 0xff]!;
  return (value ^ 0xffffffff) >>> 0;
}

async function deflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const packed = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(packed).arrayBuffer());
}

function header(signature: number, fields: [size: 2 | 4, value: number][]): Uint8Array<ArrayBuffer> {
  const view = new DataView(new ArrayBuffer(4 + fields.reduce((sum, [size]) => sum + size, 0)));
  view.setUint32(0, signature, true);
  let at = 4;
  for (const [size, value] of fields) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return new Uint8Array(view.buffer);
}

export async function zip(files: NamedFile[]): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  const directory: Uint8Array<ArrayBuffer>[] = [];
  let offset = 0;
  for (const { path, file } of files) {
    const name = new TextEncoder().encode(path);
    const raw = new Uint8Array(await file.arrayBuffer());
    const packed = await deflate(raw);
    const common: [2 | 4, number][] = [
      [2, 20], [2, UTF8_NAMES], [2, DEFLATED], [2, 0], [2, 33], [4, crc32(raw)], [4, packed.length], [4, raw.length],
      [2, name.length], [2, 0],
    ];
    const local = header(0x04034b50, common);
    directory.push(header(0x02014b50, [[2, 20], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]), name);
    parts.push(local, name, packed);
    offset += local.length + name.length + packed.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const count: [2, number] = [2, files.length];
  const end = header(0x06054b50, [[2, 0], [2, 0], count, count, [4, size], [4, offset], [2, 0]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

export interface Dropped {
  name: string; // of the archive or folder, without its ending
  archive: Blob;
  fileCount: number; // 0: not known, because an archive was dropped
}

/** Turn what was dropped or chosen into one archive: a ZIP as it is, a folder or files packed. */
export async function archiveOf(files: NamedFile[]): Promise<Dropped> {
  const only = files[0];
  if (files.length === 1 && only && /\.zip$/i.test(only.path)) {
    return { name: only.path.replace(/^.*\//, "").replace(/\.zip$/i, ""), archive: only.file, fileCount: 0 };
  }
  const kept = files.filter(({ path }) => !LEFT_OUT.test(path));
  const top = topFolder(kept);
  const stripped = top ? kept.map(({ path, file }) => ({ path: path.slice(top.length + 1), file })) : kept;
  return { name: top, archive: await zip(stripped), fileCount: stripped.length };
}

function topFolder(files: NamedFile[]): string {
  const first = files[0]?.path.split("/")[0] ?? "";
  return files.every(({ path }) => path.startsWith(`${first}/`)) ? first : "";
}

/** Read the files of a drop, with those in folders. */
export async function filesOf(transfer: DataTransfer): Promise<NamedFile[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const found: NamedFile[] = [];
  for (const entry of entries) await walk(entry, found);
  return found;
}

export function filesOfInput(list: FileList): NamedFile[] {
  return [...list].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

async function walk(entry: FileSystemEntry, found: NamedFile[]): Promise<void> {
  const path = entry.fullPath.replace(/^\//, "");
  if (LEFT_OUT.test(path)) return;
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    found.push({ path, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return;
    for (const each of some) await walk(each, found);
  }
}
