/** Drop a folder or a ZIP: it becomes a static site, and the page says when it is live. */

import { CircleCheck, ExternalLink, FileArchive, FolderOpen, Upload } from "lucide-preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { changed } from "../../api/resource";
import type { Data } from "../../api/types";
import { bytes, hostOf, slugify } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { archiveOf, filesOf, filesOfInput, type Dropped, type NamedFile } from "../../lib/zip";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Button, ButtonLink } from "../../ui/button";
import { ErrorBox, Notice } from "../../ui/feedback";
import { Field } from "../../ui/form";
import { DeploymentLog } from "../../ui/log/deployment";
import { Status } from "../../ui/status";

type Uploaded = Data<"/v1/projects/static-upload", "post">;

/** Without a name it creates a site; with one, the files become the next deployment of that site. */
export function DropSite({ name }: { name?: string | undefined }) {
  const [dropped, setDropped] = useState<Dropped>();
  const [uploaded, setUploaded] = useState<Uploaded>();
  const pack = useAction(
    async (files: NamedFile[]) => {
      if (files.length === 0) throw new ApiError(400, "bad_request", text.home.tooEmpty);
      setDropped(await archiveOf(files));
    },
    { isQuiet: true },
  );
  if (uploaded) return <Progress uploaded={uploaded} onAgain={() => (setUploaded(undefined), setDropped(undefined))} />;
  if (dropped) return <NameAndDeploy dropped={dropped} fixed={name} onDone={setUploaded} onCancel={() => setDropped(undefined)} />;
  return (
    <div class="stack">
      <DropZone isBusy={pack.isBusy} onFiles={(files) => void pack.run(files)} />
      {pack.error && <ErrorBox error={pack.error} />}
    </div>
  );
}

function DropZone({ isBusy, onFiles }: { isBusy: boolean; onFiles: (files: NamedFile[]) => void }) {
  const [isOver, setOver] = useState(false);
  const zip = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const why = whyNot("member");
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (event.dataTransfer && !why) onFiles(await filesOf(event.dataTransfer));
  };
  const choose = (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    if (input.files?.length) onFiles(filesOfInput(input.files));
    input.value = "";
  };
  return (
    <div class={`drop ${isOver ? "over" : ""}`} onDragOver={(event) => (event.preventDefault(), setOver(true))} onDragLeave={() => setOver(false)} onDrop={drop}>
      <span class="mark" aria-hidden="true">
        <Upload size={20} />
      </span>
      <strong>{isBusy ? text.home.packing : isOver ? text.home.dropNow : text.home.drop}</strong>
      <p class="soft small">{text.home.dropHint}</p>
      <div class="row wrap">
        <Button why={why} onClick={() => folder.current?.click()} icon={<FolderOpen size={15} aria-hidden="true" />}>
          {text.home.chooseFolder}
        </Button>
        <Button why={why} onClick={() => zip.current?.click()} icon={<FileArchive size={15} aria-hidden="true" />}>
          {text.home.chooseZip}
        </Button>
      </div>
      <input ref={zip} type="file" accept=".zip" hidden aria-label={text.home.chooseZip} onChange={choose} />
      <input ref={folder} type="file" hidden aria-label={text.home.chooseFolder} onChange={choose} {...{ webkitdirectory: true }} />
    </div>
  );
}

function NameAndDeploy({ dropped, fixed, onDone, onCancel }: { dropped: Dropped; fixed: string | undefined; onDone: (uploaded: Uploaded) => void; onCancel: () => void }) {
  const [name, setName] = useState(fixed ?? (slugify(dropped.name) || "my-site"));
  const upload = useAction(() => uploadSite(name, dropped.archive), { isQuiet: true, onDone, refreshes: ["/v1/projects", "/v1/usage"] });
  return (
    <form
      class="stack wide"
      onSubmit={(event) => {
        event.preventDefault();
        void upload.run();
      }}
    >
      {upload.error && !upload.error.fields["name"] && <ErrorBox error={upload.error} />}
      {dropped.fileCount > 0 && <p class="soft">{text.home.packed(dropped.fileCount, bytes(dropped.archive.size))}</p>}
      <Field label={text.home.siteName} hint={text.createProject.nameHint} problem={upload.error?.fields["name"]}>
        {(ids) => <input {...ids} class="input" value={name} disabled={fixed !== undefined} autofocus autocomplete="off" spellcheck={false} onFocus={(event) => event.currentTarget.select()} onInput={(event) => setName(event.currentTarget.value.toLowerCase())} />}
      </Field>
      <div class="row wrap">
        <Button type="submit" kind="primary" isBusy={upload.isBusy} why={whyNot("member")}>
          {upload.isBusy ? text.home.uploading : text.home.deploy}
        </Button>
        <Button onClick={onCancel}>{text.common.cancel}</Button>
      </div>
      <ApiCall method="POST" path="/v1/projects/static-upload" form={{ name, staticFiles: "@site.zip" }} />
    </form>
  );
}

export async function uploadSite(name: string, archive: Blob): Promise<Uploaded> {
  const body = new FormData();
  body.set("name", name);
  body.set("staticFiles", archive, `${name}.zip`);
  return api.post("/v1/projects/static-upload", { body });
}

function Progress({ uploaded, onAgain }: { uploaded: Uploaded; onAgain: () => void }) {
  const [isDone, setDone] = useState(false);
  const [status, setStatus] = useState("queued");
  useEffect(() => {
    if (!isDone) return;
    void api.get("/v1/deployments/{uuid}/status", { path: { uuid: uploaded.uploadId } }).then((found) => setStatus(found.status));
    changed("/v1/projects");
  }, [isDone]);
  return (
    <div class="stack">
      {status === "succeeded" ? (
        <div class="live">
          <CircleCheck size={28} aria-hidden="true" />
          <div class="grow stack tight">
            <strong>{text.home.liveNow}</strong>
            <a href={uploaded.liveUrl} target="_blank" rel="noopener noreferrer">
              {hostOf(uploaded.liveUrl)}
            </a>
          </div>
          <ButtonLink kind="primary" href={uploaded.liveUrl} isExternal icon={<ExternalLink size={15} aria-hidden="true" />}>
            {text.home.openSite}
          </ButtonLink>
        </div>
      ) : (
        <Status of={status === "failed" ? "failed" : "deploying"} word={status === "failed" ? undefined : text.home.publishing} />
      )}
      {status === "failed" && <Notice kind="bad">{text.status.failed}</Notice>}
      <div class="row wrap">
        <ButtonLink href={`/projects/${uploaded.name}`}>{text.home.openProject}</ButtonLink>
        <Button kind="quiet" onClick={onAgain}>
          {text.home.another}
        </Button>
      </div>
      <DeploymentLog uuid={uploaded.uploadId} onDone={() => setDone(true)} />
    </div>
  );
}
