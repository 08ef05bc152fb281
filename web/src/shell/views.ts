// The views, in the order of the navigation. Each is loaded when it is first looked at.
import type { Component } from 'svelte';
import type { IconName } from '../parts/Icon.svelte';

export interface ViewEntry {
  id: string;
  name: string;
  icon: IconName;
  /** Pressed after `g`. */
  key: string;
  load: () => Promise<{ default: Component }>;
}

export const views: ViewEntry[] = [
  { id: 'flow', name: 'Flow', icon: 'flow', key: 'f', load: () => import('../views/flow/Flow.svelte') },
  { id: 'alerts', name: 'Alerts', icon: 'alerts', key: 't', load: () => import('../views/Alerts.svelte') },
  { id: 'conservation', name: 'Conservation', icon: 'conservation', key: 'c', load: () => import('../views/conservation/Conservation.svelte') },
  { id: 'nodes', name: 'Nodes', icon: 'nodes', key: 'n', load: () => import('../views/nodes/Nodes.svelte') },
  { id: 'queues', name: 'Queues', icon: 'queues', key: 'q', load: () => import('../views/queues/Queues.svelte') },
  { id: 'explore', name: 'Explore', icon: 'explore', key: 'e', load: () => import('../views/explore/Explore.svelte') },
  { id: 'sessions', name: 'Sessions', icon: 'sessions', key: 's', load: () => import('../views/sessions/Sessions.svelte') },
  { id: 'alarms', name: 'Alarms', icon: 'alarms', key: 'a', load: () => import('../views/alarms/Alarms.svelte') },
  { id: 'schedules', name: 'Schedules', icon: 'schedules', key: 'd', load: () => import('../views/schedules/Schedules.svelte') },
];
