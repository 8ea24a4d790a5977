/** Types that the front end's scripts share, beside those of the messages. */

import type {
  Answer,
  CellsRequest,
  CompareRequest,
  DetailsRequest,
  DifferenceRequest,
  EventsRequest,
  PlanRequest,
  RowsRequest,
  SearchRequest
} from './messages.js';
import type {
  BodyRequest,
  CostRequest,
  SweepRequest,
  ExportRequest,
  HandleRequest,
  ImageRequest,
  MarksRequest,
  ProjectionRequest,
  WhatIfRequest
} from './messages.js';

/** A child of an element. Null, undefined and false are left out. */
export type Child = Node | string | number | boolean | null | undefined | readonly Child[];

/** A request without the fields that the host adds. */
type Asked<Request> = Omit<Request, 'type' | 'id'>;
export type Requests = {
  plan: Asked<PlanRequest>;
  events: Asked<EventsRequest>;
  compare: Asked<CompareRequest>;
  rows: Asked<RowsRequest>;
  details: Asked<DetailsRequest>;
  search: Asked<SearchRequest>;
  projection: Asked<ProjectionRequest>;
  request: Asked<BodyRequest>;
  image: Asked<ImageRequest>;
  whatif: Asked<WhatIfRequest>;
  cost: Asked<CostRequest>;
  sweep: Asked<SweepRequest>;
  cells: Asked<CellsRequest>;
  marks: Asked<MarksRequest>;
  handle: Asked<HandleRequest>;
  export: Asked<ExportRequest>;
  difference: Asked<DifferenceRequest>;
};
export type Answers = { [Type in keyof Requests]: Extract<Answer, { type: Type }> };

/** Asks the kernel; executes nothing. Where there is no answer, `error` says why. */
export type Ask = <Type extends keyof Requests>(
  type: Type,
  request: Requests[Type]
) => Promise<Answers[Type] | { error: string }>;
