/** Restore a backup: what comes back, what is lost, what is kept; then the name of the database. */

import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import type { Data, Item } from "../../api/types";
import { absolute } from "../../lib/format";
import { text } from "../../text";
import { ConfirmDanger } from "../../ui/dialog";
import { Notice } from "../../ui/feedback";
import { Choices, Field } from "../../ui/form";

export type Backup = Item<Data<"/v1/databases/{name}/backups">>;

const t = text.database.backups;

/** The value of a `datetime-local` field, in the zone of the browser. */
function toLocal(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

export function RestoreDialog({ name, backup, onClose }: { name: string; backup: Backup; onClose: () => void }) {
  const made = new Date(backup.completedAt ?? backup.startedAt);
  const isPhysical = backup.method === "physical";
  const [kind, setKind] = useState("backup");
  const [moment, setMoment] = useState(toLocal(new Date()));
  const at = new Date(moment);
  const isWrong = kind === "moment" && !(at >= made && at.getTime() <= Date.now() + 1_000);
  const act = async () => {
    if (isWrong) throw new ApiError(400, "bad_request", t.badTime);
    const targetTime = kind === "moment" ? { targetTime: at.toISOString() } : {};
    return api.post("/v1/databases/{name}/restore", { path: { name }, body: { backupName: backup.name, confirm: true, ...targetTime } });
  };
  return (
    <ConfirmDanger title={t.restoreTitle(name)} button={t.restoreTitle(name)} name={name} act={act} onClose={onClose} done={t.restoring} refreshes={[`/v1/databases/${name}`]}>
      {isPhysical && (
        <Choices
          label={t.what}
          value={kind}
          onChange={setKind}
          options={[
            { value: "backup", label: t.backup, hint: absolute(made) },
            { value: "moment", label: t.moment, hint: t.momentHint },
          ]}
        />
      )}
      {kind === "moment" && (
        <Field label={t.time} problem={isWrong ? t.badTime : undefined}>
          {(ids) => <input {...ids} class="input" type="datetime-local" step={1} min={toLocal(made)} max={toLocal(new Date())} value={moment} onInput={(event) => setMoment(event.currentTarget.value)} />}
        </Field>
      )}
      <Notice kind="warn">
        <p>{t.lost(absolute(kind === "moment" && !isWrong ? at : made))}</p>
      </Notice>
      <p class="soft">{t.kept}</p>
      <p class="soft">{t.down}</p>
    </ConfirmDanger>
  );
}
