/** Variables and secrets of a function. */

import { KeyRound } from "lucide-preact";
import { useEffect, useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { can, whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Secret } from "../../ui/copy";
import { Confirm, Dialog } from "../../ui/dialog";
import { Card, Empty, ErrorBox, Loaded, Notice } from "../../ui/feedback";
import { Field } from "../../ui/form";
import { Table } from "../../ui/table";
import { withReason, type Fn, type TabProps } from "./function";
import { filled, Variables } from "./variables";

const t = text.variables;

export default function Environment({ fn }: TabProps) {
  return (
    <div class="stack wide">
      <VariablesCard fn={fn} />
      <SecretsCard name={fn.name} />
    </div>
  );
}

function VariablesCard({ fn }: { fn: Fn }) {
  const stored = JSON.stringify(fn.env);
  const [rows, setRows] = useState(fn.env);
  const isChanged = JSON.stringify(filled(rows)) !== stored;
  // A change of somebody else shows up, unless there are own changes.
  useEffect(() => setRows((current) => (JSON.stringify(filled(current)) === stored ? current : fn.env)), [stored]);
  const save = useAction(() => api.patch("/v1/functions/{name}", { path: { name: fn.name }, body: { env: filled(rows) } }), {
    isQuiet: true,
    done: t.saved,
    refreshes: [`/v1/functions/${fn.name}`],
  });
  const why = whyNot("member");
  return (
    <Card
      title={t.title}
      foot={
        <>
          <span class="grow">{t.hint}</span>
          <Button size="small" kind="primary" why={why} isDisabled={!isChanged} isBusy={save.isBusy} onClick={() => save.run()}>
            {t.save}
          </Button>
        </>
      }
    >
      <div class="stack">
        {save.error && <ErrorBox error={save.error} details={withReason(save.error)} />}
        {rows.length === 0 && <p class="soft">{t.none}</p>}
        <Variables rows={rows} onChange={setRows} why={why} />
      </div>
    </Card>
  );
}

function SecretsCard({ name }: { name: string }) {
  const list = useResource("/v1/functions/{name}/secrets", { path: { name } }, { isOn: can("member") });
  const [edited, setEdited] = useState<string>(); // "" is a new one
  const [removed, setRemoved] = useState<string>();
  const why = whyNot("member");
  const names = (list.data ?? []).map((each) => each.name);
  const patch = (secrets: { name: string; value?: string }[]) => api.patch("/v1/functions/{name}", { path: { name }, body: { secrets } as never });
  return (
    <Card
      title={t.secrets}
      isFlush
      actions={
        <Button size="small" why={why} onClick={() => setEdited("")} icon={<KeyRound size={14} aria-hidden="true" />}>
          {t.addSecret}
        </Button>
      }
      foot={t.secretsHint}
    >
      {why ? (
        <div class="well">
          <Notice>{why}</Notice>
        </div>
      ) : (
        <Loaded of={list}>
          {(items) =>
            items.length === 0 ? (
              <Empty icon={<KeyRound size={20} />}>{t.noSecrets}</Empty>
            ) : (
              <Table
                label={t.secrets}
                rows={items}
                keyOf={(each) => each.name}
                columns={[
                  { name: t.name, of: (each) => <code>{each.name}</code> },
                  {
                    name: t.value,
                    of: (each) => <Secret label={each.name} reveal={async () => (await api.post("/v1/functions/{name}/secrets/reveal", { path: { name }, body: { name: each.name } })).value} />,
                  },
                  {
                    name: "",
                    of: (each) => (
                      <span class="row end grow">
                        <Button size="small" kind="quiet" onClick={() => setEdited(each.name)}>
                          {t.changeSecret}
                        </Button>
                        <Button size="small" kind="danger" onClick={() => setRemoved(each.name)}>
                          {t.removeSecret}
                        </Button>
                      </span>
                    ),
                  },
                ]}
              />
            )
          }
        </Loaded>
      )}
      {edited !== undefined && (
        <SecretDialog
          name={edited}
          onClose={() => setEdited(undefined)}
          refreshes={[`/v1/functions/${name}/secrets`]}
          save={(secret) => patch([...names.filter((each) => each !== secret.name).map((each) => ({ name: each })), secret])}
        />
      )}
      {removed !== undefined && (
        <Confirm
          title={`${t.removeSecret} ${removed}`}
          button={t.removeSecret}
          act={() => patch(names.filter((each) => each !== removed).map((each) => ({ name: each })))}
          onClose={() => setRemoved(undefined)}
          done={t.secretRemoved(removed)}
          refreshes={[`/v1/functions/${name}/secrets`]}
        >
          <p>{t.removeSecretText(removed)}</p>
        </Confirm>
      )}
    </Card>
  );
}

interface SecretDialogProps {
  name: string; // "" is a new one
  onClose: () => void;
  refreshes: string[];
  save: (secret: { name: string; value: string }) => Promise<unknown>;
}

function SecretDialog({ name, onClose, refreshes, save }: SecretDialogProps) {
  const [typed, setTyped] = useState(name);
  const [value, setValue] = useState("");
  const action = useAction(() => save({ name: typed.trim(), value }), { isQuiet: true, done: () => t.secretSaved(typed.trim()), refreshes, onDone: onClose });
  return (
    <Dialog
      title={name ? `${t.changeSecret} ${name}` : t.addSecret}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button kind="primary" isDisabled={!typed.trim() || !value} isBusy={action.isBusy} onClick={() => action.run()}>
            {text.common.save}
          </Button>
        </>
      }
    >
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (typed.trim() && value) void action.run();
        }}
      >
        <Field label={t.secretName}>
          {(ids) => <input {...ids} class="input mono" value={typed} disabled={name !== ""} autofocus={name === ""} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />}
        </Field>
        <Field label={t.secretValue} hint={text.common.secretAudited}>
          {(ids) => <input {...ids} class="input mono" type="password" value={value} autofocus={name !== ""} autocomplete="new-password" onInput={(event) => setValue(event.currentTarget.value)} />}
        </Field>
        <button type="submit" hidden />
      </form>
      {action.error && <ErrorBox error={action.error} details={withReason(action.error)} />}
    </Dialog>
  );
}
