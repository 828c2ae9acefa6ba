/** Variables and secrets of a project. */

import { ClipboardPaste, KeyRound, Pencil, Plus, Trash2, Variable } from "lucide-preact";
import { useState } from "preact/hooks";
import { api } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { dotenvLine } from "../../../lib/dotenv";
import { can, whyNot } from "../../../lib/roles";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Copy, CopyButton } from "../../../ui/copy";
import { Confirm, Dialog } from "../../../ui/dialog";
import { Card, Empty, Loaded, Notice } from "../../../ui/feedback";
import { Form, SwitchField, TextField, useForm } from "../../../ui/form";
import { Reveal } from "../../../ui/reveal";
import { Table } from "../../../ui/table";
import type { TabProps } from "../project";
import type { Project } from "../state";
import { saveEnvironment, type Pair } from "./env";
import { useLinks } from "./links";
import { PasteDotenv } from "./paste";

type Open = { kind: "add"; isSecret: boolean } | { kind: "edit"; pair: Pair; isSecret: boolean } | { kind: "remove"; name: string; isSecret: boolean } | { kind: "paste" };

export default function Environment({ project }: TabProps) {
  const [open, setOpen] = useState<Open>();
  const close = () => setOpen(undefined);
  const t = text.environment;
  const secrets = useResource("/v1/projects/{name}/secrets", { path: { name: project.name } }, { pollMs: 15_000, isOn: can("member") });
  return (
    <div class="stack wide">
      <Notice actions={<PasteButton onClick={() => setOpen({ kind: "paste" })} />}>{project.slug === "container" ? t.atOnce : t.nextDeployment}</Notice>
      <Card title={t.variables} isFlush actions={<VariableTools project={project} onAdd={() => setOpen({ kind: "add", isSecret: false })} />}>
        <Variables project={project} onOpen={setOpen} />
      </Card>
      <Card
        title={t.secrets}
        isFlush
        actions={
          <Button size="small" why={whyNot("member")} onClick={() => setOpen({ kind: "add", isSecret: true })} icon={<Plus size={14} aria-hidden="true" />}>
            {t.addSecret}
          </Button>
        }
      >
        {can("member") ? (
          <Loaded of={secrets}>{(items) => <Secrets project={project} items={items} onOpen={setOpen} />}</Loaded>
        ) : (
          <Empty icon={<KeyRound size={20} />}>
            {t.needsMember} {whyNot("member")}
          </Empty>
        )}
      </Card>
      {open?.kind === "paste" && <PasteDotenv project={project} secrets={secrets.data ?? []} onClose={close} />}
      {open?.kind === "add" && <PairDialog project={project} isSecret={open.isSecret} onClose={close} />}
      {open?.kind === "edit" && <PairDialog project={project} pair={open.pair} isSecret={open.isSecret} onClose={close} />}
      {open?.kind === "remove" && (
        <Confirm
          title={t.remove(open.name)}
          button={t.remove(open.name)}
          act={() => saveEnvironment(project.name, open.isSecret ? { removedSecrets: [open.name] } : { removedEnv: [open.name] })}
          onClose={close}
        >
          <p>{t.removeText(open.name)}</p>
        </Confirm>
      )}
    </div>
  );
}

function PasteButton({ onClick }: { onClick: () => void }) {
  return (
    <Button size="small" why={whyNot("member")} onClick={onClick} icon={<ClipboardPaste size={14} aria-hidden="true" />}>
      {text.environment.paste}
    </Button>
  );
}

function VariableTools({ project, onAdd }: { project: Project; onAdd: () => void }) {
  return (
    <>
      {project.env.length > 0 && <CopyButton value={project.env.map(dotenvLine).join("\n")} label={text.environment.copyAll} />}
      <Button size="small" why={whyNot("member")} onClick={onAdd} icon={<Plus size={14} aria-hidden="true" />}>
        {text.environment.add}
      </Button>
    </>
  );
}

function Variables({ project, onOpen }: { project: Project; onOpen: (open: Open) => void }) {
  const t = text.environment;
  if (project.env.length === 0) return <Empty icon={<Variable size={20} />}>{t.noVariables}</Empty>;
  return (
    <Table
      label={t.variables}
      rows={project.env}
      keyOf={(each) => each.name}
      columns={[
        { name: text.common.name, of: (each) => <span class="mono strong">{each.name}</span>, sort: (each) => each.name, width: "32%" },
        { name: t.value, of: (each) => <Copy value={each.value} isMono shown={each.value.split("\n")[0] || "–"} /> },
        {
          name: text.orgCommon.actions,
          width: "92px",
          of: (each) => <RowTools name={each.name} onEdit={() => onOpen({ kind: "edit", pair: each, isSecret: false })} onRemove={() => onOpen({ kind: "remove", name: each.name, isSecret: false })} />,
        },
      ]}
    />
  );
}

function RowTools({ name, label, onEdit, onRemove }: { name: string; label?: string; onEdit: () => void; onRemove: () => void }) {
  const why = whyNot("member");
  return (
    <span class="row-tools">
      <Button kind="quiet" size="small" label={label ?? text.environment.edit(name)} why={why} onClick={onEdit} icon={<Pencil size={14} aria-hidden="true" />} />
      <Button kind="quiet" size="small" label={text.environment.remove(name)} why={why} onClick={onRemove} icon={<Trash2 size={14} aria-hidden="true" />} />
    </span>
  );
}

function Secrets({ project, items, onOpen }: { project: Project; items: { name: string }[]; onOpen: (open: Open) => void }) {
  const t = text.environment;
  const links = useLinks(project.id, items.map((each) => each.name));
  if (items.length === 0) return <Empty icon={<KeyRound size={20} />}>{t.noSecrets}</Empty>;
  return (
    <Table
      label={t.secrets}
      rows={items}
      keyOf={(each) => each.name}
      columns={[
        {
          name: text.common.name,
          width: "32%",
          sort: (each) => each.name,
          of: (each) => (
            <span class="row">
              <span class="mono strong cut">{each.name}</span>
              {links[each.name] && (
                <a class="tag" href={`/databases/${links[each.name]}`} title={t.linkedHint}>
                  {t.linked(links[each.name]!)}
                </a>
              )}
            </span>
          ),
        },
        {
          name: t.value,
          of: (each) => (
            <Reveal
              name={each.name}
              why={whyNot("member")}
              read={async () => (await api.post("/v1/projects/{name}/secrets/reveal", { path: { name: project.name }, body: { name: each.name } })).value}
            />
          ),
        },
        {
          name: text.orgCommon.actions,
          width: "92px",
          of: (each) => (
            <RowTools
              name={each.name}
              label={t.replace(each.name)}
              onEdit={() => onOpen({ kind: "edit", pair: { name: each.name, value: "" }, isSecret: true })}
              onRemove={() => onOpen({ kind: "remove", name: each.name, isSecret: true })}
            />
          ),
        },
      ]}
    />
  );
}

interface PairDialogProps {
  project: Project;
  pair?: Pair;
  isSecret: boolean;
  onClose: () => void;
}

/** Add a variable or secret, or replace the value of one. */
function PairDialog({ project, pair, isSecret, onClose }: PairDialogProps) {
  const t = text.environment;
  const form = useForm(
    { name: pair?.name ?? "", value: pair?.value ?? "", isSecret },
    (values) => {
      const put = [{ name: values.name.trim(), value: values.value }];
      const renamed = pair && pair.name !== put[0]!.name ? [pair.name] : [];
      const removed = isSecret ? { removedSecrets: renamed } : { removedEnv: renamed };
      return saveEnvironment(project.name, { ...(values.isSecret ? { secrets: put } : { env: put }), ...removed });
    },
    { onDone: onClose },
  );
  const title = pair ? (isSecret ? t.replace(pair.name) : t.edit(pair.name)) : isSecret ? t.addSecret : t.add;
  return (
    <Dialog title={title} onClose={onClose}>
      <Form form={form} submit={text.common.save} onCancel={onClose} why={whyNot("member")}>
        {!(pair && isSecret) && <TextField form={form} name="name" label={text.common.name} hint={t.nameHint} isCode isFocused={!pair} placeholder="API_URL" />}
        <TextField form={form} name="value" label={t.value} isCode rows={3} />
        {!isSecret && <SwitchField form={form} name="isSecret" label={t.asSecret} hint={t.asSecretHint} />}
      </Form>
    </Dialog>
  );
}
