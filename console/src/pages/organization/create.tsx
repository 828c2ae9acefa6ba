/** Create an organization and open it. */

import { useLocation } from "preact-iso";
import { api } from "../../api/client";
import { chooseOrganization } from "../../api/session";
import { PageHead } from "../../frame/page";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Card } from "../../ui/feedback";
import { Form, TextField, useForm } from "../../ui/form";

export default function CreateOrganization() {
  const { route } = useLocation();
  const t = text.organization;
  const form = useForm({ name: "" }, (values) => api.post("/v1/orgs", { body: values }), {
    done: (made) => t.created(made.name),
    refreshes: ["/v1/me", "/v1/orgs"],
    onDone: (made) => (chooseOrganization(made.organizationId), route("/")),
  });
  return (
    <>
      <PageHead title={t.create} crumbs={[{ label: t.title, href: "/settings" }]} />
      <div class="settings-grid">
        <Card>
          <Form form={form} submit={t.create}>
            <TextField form={form} name="name" label={t.name} hint={t.createHint} placeholder="Acme" isFocused />
            <ApiCall method="POST" path="/v1/orgs" body={form.values.value} />
          </Form>
        </Card>
      </div>
    </>
  );
}
