/** Name, switch, webhook secret, and the end of an organization. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { refresh, useResource } from "../../api/resource";
import { chooseOrganization } from "../../api/session";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Copy } from "../../ui/copy";
import { Confirm, ConfirmDanger } from "../../ui/dialog";
import { Card, Facts } from "../../ui/feedback";
import { Form, Switch, TextField, useForm } from "../../ui/form";
import { Reveal } from "../../ui/reveal";
import { Time } from "../../ui/time";
import type { Organization, OrganizationTabProps } from "./organization";

export default function General({ organization }: OrganizationTabProps) {
  const t = text.organization;
  const path = { org_id: Number(organization.organizationId) };
  const refreshes = ["/v1/orgs", "/v1/me"];
  const form = useForm({ name: organization.name }, ({ name }) => api.patch("/v1/orgs/{org_id}", { path, body: { name } }), { done: t.renamed, refreshes });
  const push = useAction((createOnPush: boolean) => api.patch("/v1/orgs/{org_id}", { path, body: { createOnPush } }), { done: t.renamed, refreshes });
  return (
    <div class="settings-grid">
      <Card title={t.general}>
        <div class="stack wide">
          <Form form={form} submit={t.rename} why={whyNot("admin")}>
            <TextField form={form} name="name" label={t.name} />
          </Form>
          <Facts
            items={[
              [t.slug, <Copy value={organization.slug} isMono />],
              [t.id, <Copy value={organization.organizationId} isMono />],
              [text.common.created, <Time at={organization.createdAt} />],
            ]}
          />
        </div>
      </Card>
      <Card>
        <Switch label={t.createOnPush} hint={t.createOnPushHint} isOn={organization.createOnPush} why={whyNot("admin")} onChange={(isOn) => void push.run(isOn)} />
      </Card>
      <Card title={t.webhookSecret} foot={t.webhookHint}>
        <Reveal name={t.webhookSecret} why={whyNot("admin")} read={async () => (await api.post("/v1/orgs/{org_id}/webhook-secret/reveal", { path })).secret} />
      </Card>
      <Ending organization={organization} />
    </div>
  );
}

/** Leave or delete the organization; then another one of the person is open. */
function Ending({ organization }: { organization: Organization }) {
  const { route } = useLocation();
  const me = useResource("/v1/me", {});
  const [asked, setAsked] = useState<"leave" | "delete">();
  const t = text.organization;
  const path = { org_id: Number(organization.organizationId) };
  const goOn = () => {
    const other = me.data?.organizations.find((each) => each.organizationId !== organization.organizationId);
    if (other) chooseOrganization(other.organizationId);
    refresh();
    route("/");
  };
  const close = () => setAsked(undefined);
  return (
    <Card title={t.dangerTitle} isDanger>
      <div class="stack wide">
        <div class="row between wrap">
          <p class="soft grow">{t.leaveText}</p>
          <Button kind="danger" onClick={() => setAsked("leave")}>
            {t.leave}
          </Button>
        </div>
        <div class="row between wrap">
          <p class="soft grow">{t.deleteText}</p>
          <Button kind="danger" why={whyNot("owner")} onClick={() => setAsked("delete")}>
            {t.delete}
          </Button>
        </div>
      </div>
      {asked === "leave" && (
        <Confirm title={t.leave} button={t.leave} act={() => api.delete("/v1/orgs/{org_id}/members/{user_id}", { path: { ...path, user_id: me.data?.id ?? 0 } })} onClose={close} done={t.left(organization.name)} onDone={goOn}>
          <p>{t.leaveText}</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <ConfirmDanger title={t.delete} button={`${t.delete} ${organization.name}`} name={organization.name} act={() => api.delete("/v1/orgs/{org_id}", { path })} onClose={close} done={t.deleted(organization.name)} onDone={goOn}>
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
