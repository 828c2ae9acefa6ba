/** Texts of the frame and of components. */

import type { Role } from "../lib/roles";

export const frame = {
  product: "Moorage",
  skip: "Skip to the content",
  menu: "Menu",
  closeMenu: "Close the menu",
  breadcrumbs: "Breadcrumbs",
  search: "Search",
  notifications: "Notifications",
  noNotifications: "No notifications yet. Incidents, failed deployments and invitations appear here.",
  markAllRead: "Mark all as read",
  account: "Account",
  organization: "Organization",
  switchOrganization: "Switch organization",
  theme: "Theme",
  themes: { system: "System", light: "Light", dark: "Dark" },
  apiPage: "API reference",
  shortcuts: "Keyboard shortcuts",
  signOut: "Sign out",
  offline: "The platform does not answer. What you see is from",
  offlineSoon: "Trying again.",
  expired: "Your session has ended. Sign in to go on where you were.",
  notFound: "There is no page at this address",
  notFoundHint: "The resource may have been renamed or deleted.",
  toHome: "Go to Home",
  newVersion: "The console was updated. Loading the new version.",
  crashed: "This page failed to show",
};

export const common = {
  cancel: "Cancel",
  close: "Close",
  save: "Save",
  retry: "Try again",
  copy: "Copy",
  copied: "Copied",
  reveal: "Reveal",
  hide: "Hide",
  more: "More",
  open: "Open",
  create: "Create",
  advanced: "Advanced",
  optional: "optional",
  loading: "Loading",
  loadingMore: "Loading more",
  trace: "Trace",
  noAnswer: "The platform does not answer",
  cutOff: "The answer was cut off",
  filter: "Filter",
  noMatch: (filter: string) => `Nothing matches “${filter}”.`,
  asOf: (time: string) => `as of ${time}`,
  updated: "Updated",
  created: "Created",
  name: "Name",
  status: "Status",
  never: "never",
  none: "none",
  sortBy: (column: string) => `Sort by ${column}`,
  failed: "Something failed",
  optionalHint: "may stay empty",
  showApiCall: "Show as API call",
  typeName: (name: string) => `Type ${name} to confirm`,
  secretHidden: "Hidden again after 30 seconds, and when you leave the tab.",
  secretAudited: "Revealing it is noted in the activity log.",
};

export const roles = {
  names: { viewer: "Viewer", member: "Member", admin: "Admin", owner: "Owner" } as Record<Role, string>,
  needs: (wanted: Role, mine: Role) => `Needs the role ${wanted}; you are ${mine}.`,
};

export const status = {
  running: "Running",
  live: "Live",
  ready: "Ready",
  deploying: "Deploying",
  queued: "Queued",
  building: "Building",
  updating: "Updating",
  pending: "Pending",
  stopped: "Stopped",
  paused: "Paused",
  disabled: "Disabled",
  failed: "Failed",
  succeeded: "Succeeded",
  completed: "Completed",
  deleting: "Deleting",
  superseded: "Superseded",
  canceled: "Canceled",
  up: "Up",
  down: "Down",
  verified: "Verified",
  issued: "Issued",
  attention: "Needs attention",
  neverDeployed: "Not deployed",
  unknown: "Unknown",
};

export const palette = {
  title: "Command palette",
  placeholder: "Search resources, pages and actions",
  nothing: "Nothing found.",
  pages: "Pages",
  actions: "Actions",
  open: "Open",
  hint: "↑↓ to move, Enter to open, Esc to close",
};

export const help = {
  title: "Keyboard shortcuts",
  search: "Search everything",
  filter: "Filter the list",
  next: "Next row",
  previous: "Previous row",
  openRow: "Open the row",
  thisHelp: "Show these shortcuts",
  goTo: (page: string) => `Go to ${page}`,
  toggleTheme: "Switch between light and dark",
};

export const log = {
  search: "Search the log",
  matches: (at: number, all: number) => `${at} of ${all}`,
  noMatches: "no match",
  follow: "Follow",
  wrap: "Wrap",
  download: "Download",
  firstError: "First error",
  newLines: (lines: number) => `${lines} new ${lines === 1 ? "line" : "lines"} ↓`,
  waiting: "Waiting for the first line",
  ended: "The log has ended",
  cut: (size: string) => `… ${size} more in this line; download the log to see all of it`,
  line: (number: number) => `Line ${number}`,
  phases: "Phases of the build",
  phaseNames: { source: "Source", plan: "Plan", publish: "Publish", start: "Start" },
};

export const chart = {
  ranges: "Range",
  table: "Values as a table",
  time: "Time",
  noData: "No samples in this range.",
};

export const editor = {
  files: "Files",
  addFile: "Add file",
  fileName: "Name of the file",
  removeFile: (name: string) => `Remove ${name}`,
  loading: "Loading the editor",
};
