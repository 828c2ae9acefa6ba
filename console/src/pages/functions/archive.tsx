/** Code as an archive: of files in the editor, or chosen by the person. */

import { FileArchive, FolderOpen, Upload } from "lucide-preact";
import { useRef, useState } from "preact/hooks";
import { bytes } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { archiveOf, filesOf, filesOfInput, zip, type Dropped, type NamedFile } from "../../lib/zip";
import { text } from "../../text";
import { Button } from "../../ui/button";
import type { Files } from "../../ui/editor/editor";

export function packFiles(files: Files): Promise<Blob> {
  return zip(Object.entries(files).map(([path, content]) => ({ path, file: new Blob([content]) })));
}

interface PickProps {
  chosen: Dropped | undefined;
  onChoose: (dropped: Dropped | undefined) => void;
}

/** A place to drop a ZIP or a folder, or to choose one. */
export function PickArchive({ chosen, onChoose }: PickProps) {
  const [isOver, setOver] = useState(false);
  const archive = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const why = whyNot("member");
  const take = async (files: NamedFile[]) => files.length > 0 && onChoose(await archiveOf(files));
  const choose = (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    if (input.files?.length) void take(filesOfInput(input.files));
    input.value = "";
  };
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (event.dataTransfer && !why) void take(await filesOf(event.dataTransfer));
  };
  if (chosen) {
    return (
      <div class="row wrap chosen-archive">
        <FileArchive size={18} aria-hidden="true" />
        <strong class="cut">{chosen.name || text.fn.fromZip}</strong>
        <span class="soft">{chosen.fileCount > 0 ? text.home.packed(chosen.fileCount, bytes(chosen.archive.size)) : text.fn.zipChosen(bytes(chosen.archive.size))}</span>
        <span class="grow" />
        <Button size="small" onClick={() => onChoose(undefined)}>
          {text.fn.zipOther}
        </Button>
      </div>
    );
  }
  return (
    <div class={`drop ${isOver ? "over" : ""}`} onDragOver={(event) => (event.preventDefault(), setOver(true))} onDragLeave={() => setOver(false)} onDrop={drop}>
      <span class="mark" aria-hidden="true">
        <Upload size={20} />
      </span>
      <strong>{text.fn.zipDrop}</strong>
      <p class="soft small">{text.fn.zipHint}</p>
      <div class="row wrap">
        <Button why={why} onClick={() => folder.current?.click()} icon={<FolderOpen size={15} aria-hidden="true" />}>
          {text.fn.chooseFolder}
        </Button>
        <Button why={why} onClick={() => archive.current?.click()} icon={<FileArchive size={15} aria-hidden="true" />}>
          {text.fn.chooseZip}
        </Button>
      </div>
      <input ref={archive} type="file" accept=".zip" hidden aria-label={text.fn.chooseZip} onChange={choose} />
      <input ref={folder} type="file" hidden aria-label={text.fn.chooseFolder} onChange={choose} {...{ webkitdirectory: true }} />
    </div>
  );
}
