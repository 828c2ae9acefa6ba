/** Edits several files of code. CodeMirror is loaded when the first editor is shown. */

import { Plus, X } from "lucide-preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { text } from "../../text";
import { Button } from "../button";
import { Skeleton } from "../feedback";
import type { OpenEditor } from "./codemirror";

export type Files = Record<string, string>;

interface EditorProps {
  files: Files;
  onChange: (files: Files) => void;
  onSave?: (() => void) | undefined; // ⌘S
  isReadOnly?: boolean | undefined;
  isSingle?: boolean | undefined; // one file, without the list
  label: string;
}

export function Editor({ files, onChange, onSave, isReadOnly = false, isSingle = false, label }: EditorProps) {
  const names = Object.keys(files);
  const [chosen, setChosen] = useState(names[0] ?? "");
  const current = chosen in files ? chosen : (names[0] ?? "");
  const remove = (name: string) => {
    const { [name]: _, ...rest } = files;
    onChange(rest);
  };
  return (
    <div class={`editor ${isSingle ? "single" : ""}`}>
      {!isSingle && (
        <div class="editor-files" role="group" aria-label={text.editor.files}>
          {names.map((name) => (
            <div key={name} class="editor-file" data-current={name === current}>
              <button type="button" class="cut" aria-pressed={name === current} onClick={() => setChosen(name)}>
                {name}
              </button>
              {!isReadOnly && names.length > 1 && (
                <Button kind="quiet" size="small" label={text.editor.removeFile(name)} onClick={() => remove(name)} icon={<X size={12} aria-hidden="true" />} />
              )}
            </div>
          ))}
          {!isReadOnly && <AddFile onAdd={(name) => (onChange({ ...files, [name]: files[name] ?? "" }), setChosen(name))} />}
        </div>
      )}
      <Code key={current} name={current} label={`${label}: ${current}`} value={files[current] ?? ""} isReadOnly={isReadOnly} onSave={onSave} onChange={(value) => onChange({ ...files, [current]: value })} />
    </div>
  );
}

function AddFile({ onAdd }: { onAdd: (name: string) => void }) {
  const [name, setName] = useState<string>();
  if (name === undefined) {
    return (
      <Button kind="quiet" size="small" onClick={() => setName("")} icon={<Plus size={13} aria-hidden="true" />}>
        {text.editor.addFile}
      </Button>
    );
  }
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (/^[\w.-]+(\/[\w.-]+)*$/.test(name)) onAdd(name);
        setName(undefined);
      }}
    >
      <input class="input mono" autofocus value={name} aria-label={text.editor.fileName} onInput={(event) => setName(event.currentTarget.value)} onBlur={() => setName(undefined)} />
    </form>
  );
}

interface CodeProps {
  name: string;
  label: string;
  value: string;
  isReadOnly: boolean;
  onChange: (value: string) => void;
  onSave: (() => void) | undefined;
}

function Code({ name, label, value, isReadOnly, onChange, onSave }: CodeProps) {
  const box = useRef<HTMLDivElement>(null);
  const opened = useRef<OpenEditor | undefined>(undefined);
  const handlers = useRef({ onChange, onSave });
  handlers.current = { onChange, onSave };
  const [isReady, setReady] = useState(false);
  const told = useRef<string[]>([]); // texts that were reported, and have not come back as `value`
  useEffect(() => {
    let isGone = false;
    void import("./codemirror").then(({ openEditor }) => {
      if (isGone || !box.current) return;
      opened.current = openEditor(box.current, {
        name,
        label,
        value,
        isReadOnly,
        onChange: (next) => {
          told.current.push(next);
          handlers.current.onChange(next);
        },
        onSave: () => handlers.current.onSave?.(),
      });
      setReady(true);
    });
    return () => {
      isGone = true;
      opened.current?.close();
    };
  }, []);
  useEffect(() => {
    // Who types faster than the page is drawn must not get an earlier text back.
    const at = told.current.lastIndexOf(value);
    told.current = told.current.slice(at + 1);
    if (at < 0) opened.current?.set(value);
  }, [value]);
  return (
    <div class="editor-code" ref={box}>
      {!isReady && (
        <div class="stack" style={{ padding: 16 }} role="status" aria-label={text.editor.loading}>
          <Skeleton width="60%" />
          <Skeleton width="40%" />
          <Skeleton width="52%" />
        </div>
      )}
    </div>
  );
}
