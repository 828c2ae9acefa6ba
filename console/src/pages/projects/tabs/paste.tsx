/** Paste a whole `.env` file: what is new and what changes is shown before anything is stored. */

import { useMemo, useState } from "preact/hooks";
import { useAction } from "../../../api/actions";
import { looksSecret, parseDotenv, type DotenvValue } from "../../../lib/dotenv";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Dialog } from "../../../ui/dialog";
import { ErrorBox } from "../../../ui/feedback";
import { Field } from "../../../ui/form";
import type { Project } from "../state";
import { saveEnvironment } from "./env";

interface PasteProps {
  project: Project;
  secrets: { name: string }[];
  onClose: () => void;
}

type Change = "new" | "changed" | "same";

export function PasteDotenv({ project, secrets, onClose }: PasteProps) {
  const t = text.environment;
  const [pasted, setPasted] = useState("");
  const [chosen, setChosen] = useState<Record<string, boolean>>({});
  const { values, bad } = useMemo(() => parseDotenv(pasted), [pasted]);
  const stored = new Set(secrets.map((each) => each.name));
  const isSecret = (each: DotenvValue) => chosen[each.name] ?? (stored.has(each.name) || looksSecret(each));
  const changeOf = (each: DotenvValue): Change => {
    const before = project.env.find((known) => known.name === each.name);
    if (stored.has(each.name)) return "changed";
    if (!before) return "new";
    return before.value === each.value && !isSecret(each) ? "same" : "changed";
  };
  const wanted = values.filter((each) => changeOf(each) !== "same");
  const save = useAction(
    () => saveEnvironment(project.name, { env: wanted.filter((each) => !isSecret(each)), secrets: wanted.filter(isSecret) }),
    { isQuiet: true, onDone: onClose },
  );
  const added = values.filter((each) => changeOf(each) === "new").length;
  return (
    <Dialog
      title={t.pasteTitle}
      onClose={onClose}
      isLarge
      foot={
        <>
          <span class="soft small grow">{values.length > 0 ? t.pasteFound(values.length, added, wanted.length - added) : t.pasteNothing}</span>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button kind="primary" isDisabled={wanted.length === 0} isBusy={save.isBusy} onClick={() => save.run()}>
            {t.pasteSave(wanted.length)}
          </Button>
        </>
      }
    >
      <Field label={t.pasteFile} hint={t.pasteHint}>
        {(ids) => (
          <textarea
            {...ids}
            class="textarea mono"
            rows={8}
            autofocus
            spellcheck={false}
            placeholder={"API_URL=https://api.example.com\nAPI_KEY=…"}
            value={pasted}
            onInput={(event) => setPasted(event.currentTarget.value)}
          />
        )}
      </Field>
      {bad.map((line) => (
        <p key={line} class="small paste-bad">
          {t.pasteBad(line)}
        </p>
      ))}
      {values.length > 0 && (
        <ul class="paste-list">
          {values.map((each) => (
            <li key={each.name} class={changeOf(each) === "same" ? "soft" : ""}>
              <span class="mono cut grow">{each.name}</span>
              <span class="soft small">{{ new: t.pasteNew, changed: t.pasteChanged, same: t.pasteSame }[changeOf(each)]}</span>
              <label class="check small">
                <input type="checkbox" checked={isSecret(each)} onChange={(event) => setChosen({ ...chosen, [each.name]: event.currentTarget.checked })} />
                {t.asSecret}
              </label>
            </li>
          ))}
        </ul>
      )}
      {save.error && <ErrorBox error={save.error} details={Object.values(save.error.fields)} />}
    </Dialog>
  );
}
