/** The side bar: organization, navigation, help. */

import { BookOpen, Check, ChevronsUpDown, Keyboard, Plus } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useResource } from "../api/resource";
import { chooseOrganization, organizationId } from "../api/session";
import { NAV, type NavItem } from "../pages";
import { text } from "../text";
import { MenuGap, MenuItem, Popover } from "../ui/menu";
import { isHelpOpen } from "./help";

export function Side() {
  const me = useResource("/v1/me", {}, { pollMs: 120_000 });
  const shown = NAV.filter((item) => !item.isForOperators || me.data?.isOperator);
  return (
    <aside class="side" aria-label={text.frame.menu}>
      <OrganizationSwitcher />
      <nav class="side-nav" aria-label={text.frame.product}>
        {shown.filter((item) => !item.isBottom).map((item) => (
          <SideLink key={item.href} item={item} />
        ))}
      </nav>
      <div class="side-bottom">
        {shown.filter((item) => item.isBottom).map((item) => (
          <SideLink key={item.href} item={item} />
        ))}
        <a class="side-link" href="/docs" target="_blank" rel="noopener">
          <BookOpen size={16} aria-hidden="true" /> {text.frame.apiPage}
        </a>
        <button type="button" class="side-link not-phone" onClick={() => (isHelpOpen.value = true)}>
          <Keyboard size={16} aria-hidden="true" /> {text.frame.shortcuts}
        </button>
      </div>
    </aside>
  );
}

function SideLink({ item }: { item: NavItem }) {
  const { path } = useLocation();
  const isCurrent = item.href === "/" ? path === "/" : path === item.href || path.startsWith(`${item.href}/`);
  const Icon = item.icon;
  return (
    <a class="side-link" href={item.href} aria-current={isCurrent ? "page" : undefined}>
      <Icon size={16} aria-hidden="true" /> {item.label}
    </a>
  );
}

export function Mark({ size = 24 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#0d9b8a" />
      <g fill="none" stroke="#fff" stroke-width="2.600" stroke-linecap="round" stroke-linejoin="round">
        <circle cx="16" cy="8.600" r="2.600" />
        <path d="M16 11.400v13.400M11 15h10M7 18.600c.500 3.900 4.200 6.600 9 6.600s8.500-2.700 9-6.600" />
      </g>
    </svg>
  );
}

function OrganizationSwitcher() {
  const me = useResource("/v1/me", {}, { pollMs: 120_000 });
  const organizations = me.data?.organizations ?? [];
  const current = organizations.find((each) => each.organizationId === organizationId.value);
  return (
    <Popover
      label={text.frame.switchOrganization}
      side="start"
      trigger={(props) => (
        <button type="button" class="organization" {...props}>
          <Mark />
          <span class="cut grow">{current?.name ?? text.frame.product}</span>
          <ChevronsUpDown size={14} aria-hidden="true" />
        </button>
      )}
    >
      {(close) => (
        <>
          {organizations.map((each) => (
            <MenuItem
              key={each.organizationId}
              isChecked={each === current}
              note={each === current ? <Check size={14} aria-hidden="true" /> : text.roles.names[each.role as "viewer"]}
              onClick={() => (chooseOrganization(each.organizationId), close())}
            >
              {each.name}
            </MenuItem>
          ))}
          <MenuGap />
          <MenuItem icon={<Plus size={15} aria-hidden="true" />} href="/organizations/new" onClick={close}>
            {text.organization.create}
          </MenuItem>
        </>
      )}
    </Popover>
  );
}
