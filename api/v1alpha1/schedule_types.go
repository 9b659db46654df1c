package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Schedule starts a SequentialJob or an AgenticSession, or sends a message to a Queue, at the times of a cron
// expression.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sched,categories=all;yardmaster
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.active`
// +kubebuilder:printcolumn:name="Last Schedule",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Last Run",type=string,JSONPath=`.status.conditions[?(@.type=="LastRunSucceeded")].reason`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Timezone",type=string,priority=1,JSONPath=`.spec.timeZone`
// +kubebuilder:printcolumn:name="Missed",type=integer,priority=1,JSONPath=`.status.missed`
// +kubebuilder:printcolumn:name="Last Missed",type=string,priority=1,JSONPath=`.status.lastMissed.reason`
// +kubebuilder:printcolumn:name="Last Success",type=date,priority=1,JSONPath=`.status.lastSuccessfulTime`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Last Run Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="LastRunSucceeded")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 41",message="metadata.name has at most 41 characters: each run appends its time"
type Schedule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to start, and when.
	// +required
	Spec ScheduleSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	// +structType=atomic
	Status ScheduleStatus `json:"status,omitempty"`
}

// ScheduleList is a list of Schedules.
//
// +kubebuilder:object:root=true
type ScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Schedule `json:"items"`
}

// ScheduleSpec is what to start, and when.
//
// +kubebuilder:validation:XValidation:rule="[has(self.sequentialJob), has(self.agenticSession), has(self.message)].filter(is, is).size() == 1",message="exactly one of sequentialJob, agenticSession and message must be set"
// +kubebuilder:validation:XValidation:rule="has(self.sequentialJob) == has(oldSelf.sequentialJob) && has(self.agenticSession) == has(oldSelf.agenticSession)",message="the kind of the runs is immutable: create another Schedule"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || !has(self.concurrencyPolicy) || self.concurrencyPolicy == 'Allow'",message="a Schedule of messages can only have concurrencyPolicy Allow: when the work on a message has ended is not known",fieldPath=".concurrencyPolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || !has(self.suspendAfterFailures)",message="a Schedule of messages cannot have suspendAfterFailures: whether the work on a message fails is not known",fieldPath=".suspendAfterFailures"
type ScheduleSpec struct {
	Cron `json:",inline"`

	// concurrencyPolicy while a run is active. Allow starts another, Forbid waits, Replace deletes the active runs.
	// Defaults to Allow.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ScheduleConcurrency `json:"concurrencyPolicy,omitempty"`

	// startingDeadlineSeconds is how late a run may start, after its jitter. Defaults to no limit. With catchUp None,
	// it is at most 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// when is a CEL expression that is evaluated when a time could start: false counts the time as missed. It can use
	// scheduledTime, runs (the last 10 that ended) and active. Defaults to true.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`

	// suspendAfterFailures is how many runs in a row may fail. Then no time starts until a run succeeds, or the Schedule is
	// suspended and resumed. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	SuspendAfterFailures *int32 `json:"suspendAfterFailures,omitempty"`

	// suspend prevents runs, except triggered ones. Times meanwhile are missed. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// catchUp is which due times run: None (at most a minute late), Latest, or All (the last 100). Defaults to Latest.
	// +optional
	// +kubebuilder:default=Latest
	CatchUp ScheduleCatchUp `json:"catchUp,omitempty"`

	// jitter is the longest random delay, 0s to 24h. Defaults to 0s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="jitter must be a duration from 0s to 24h"
	Jitter *Duration `json:"jitter,omitempty"`

	// successfulRunsHistoryLimit is how many succeeded runs are kept. Older ones are deleted, with their Jobs. Defaults to
	// 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	SuccessfulRunsHistoryLimit *int32 `json:"successfulRunsHistoryLimit,omitempty"`

	// failedRunsHistoryLimit is how many other finished runs are kept. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	FailedRunsHistoryLimit *int32 `json:"failedRunsHistoryLimit,omitempty"`

	// rerun requests runs beside those of the timetable.
	// +optional
	Rerun *ScheduleRerun `json:"rerun,omitempty"`

	// sequentialJob of each run, with the variable SCHEDULED_TIME.
	// +optional
	SequentialJob *ScheduleTemplate `json:"sequentialJob,omitempty"`

	// agenticSession of each run, with the variable SCHEDULED_TIME. Its owner is the user who last changed it.
	// +optional
	AgenticSession *ScheduleTemplate `json:"agenticSession,omitempty"`

	// message to a Queue, with the header Scheduled-Time.
	// +optional
	Message *ScheduledMessage `json:"message,omitempty"`
}

// Cron is a schedule in a time zone.
type Cron struct {
	// schedule is a cron expression of five fields, or one such as @daily; up to 10, separated by semicolons.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`

	// timeZone, such as Europe/Berlin. Defaults to UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// inGap is what happens at a time that the clocks skip: Skip, or RunAfter the change. Defaults to RunAfter. Expressions
	// with * or / in the minute or hour follow elapsed time instead.
	// +optional
	// +kubebuilder:default=RunAfter
	InGap ScheduleGap `json:"inGap,omitempty"`

	// inOverlap is how often a time runs that the clocks repeat: First or Both, with the same exception. Defaults to First.
	// +optional
	// +kubebuilder:default=First
	InOverlap ScheduleOverlap `json:"inOverlap,omitempty"`
}

// ScheduleGap is what happens at a time that a change of the clocks skips.
// +kubebuilder:validation:Enum=Skip;RunAfter
type ScheduleGap string

// The values of inGap.
const (
	GapSkip     ScheduleGap = "Skip"
	GapRunAfter ScheduleGap = "RunAfter"
)

// ScheduleOverlap is how often a time runs that a change of the clocks repeats.
// +kubebuilder:validation:Enum=First;Both
type ScheduleOverlap string

// The values of inOverlap.
const (
	OverlapFirst ScheduleOverlap = "First"
	OverlapBoth  ScheduleOverlap = "Both"
)

// ScheduleRerun requests a run of a Schedule, or with to a backfill. Another id, or none, withdraws what has not started.
//
// +kubebuilder:validation:XValidation:rule="!has(self.to) || has(self.from) && self.from <= self.to",message="to must not be before from, which it needs",fieldPath=".to"
// +kubebuilder:validation:XValidation:rule="!has(self.from) || self.from >= timestamp('1970-01-01T00:00:00Z')",message="from must not be before 1970",fieldPath=".from"
type ScheduleRerun struct {
	Rerun `json:",inline"`

	// from is the scheduled time of the run, or the first one of a backfill. Defaults to when the operator accepts the
	// request.
	// +optional
	From *metav1.Time `json:"from,omitempty"`

	// to requests a run for each time of the timetable between from and to, both included, at most 1000.
	// +optional
	To *metav1.Time `json:"to,omitempty"`
}

// ScheduledMessage is the message of each time.
type ScheduledMessage struct {
	// queueRef is the Queue.
	// +required
	QueueRef LocalReference `json:"queueRef"`

	// payload is any JSON value. Defaults to empty.
	// +optional
	Payload *apiextensionsv1.JSON `json:"payload,omitempty"`

	// kind selects the handler.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Kind string `json:"kind,omitempty"`

	// priority of the Queue. Defaults to default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Priority string `json:"priority,omitempty"`

	// timeout of an attempt, 1s to 24h. Defaults to the Queue's.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be a duration from 1s to 24h"
	Timeout *Duration `json:"timeout,omitempty"`

	// headers of the message.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Headers map[string]string `json:"headers,omitempty"`
}

// ScheduleTemplate is the object of each run.
type ScheduleTemplate struct {
	// metadata of each run.
	// +optional
	Metadata *ObjectMetadata `json:"metadata,omitempty"`

	// spec of each run. ttlSecondsAfterFinished is at least 60.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	Spec runtime.RawExtension `json:"spec"`
}

// ScheduleConcurrency is what happens at a due time while an earlier run is active.
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ScheduleConcurrency string

// The concurrency policies.
const (
	ConcurrencyAllow   ScheduleConcurrency = "Allow"
	ConcurrencyForbid  ScheduleConcurrency = "Forbid"
	ConcurrencyReplace ScheduleConcurrency = "Replace"
)

// ScheduleCatchUp defines which times still run if several are due.
// +kubebuilder:validation:Enum=None;Latest;All
type ScheduleCatchUp string

// The values of catchUp.
const (
	CatchUpNone   ScheduleCatchUp = "None"
	CatchUpLatest ScheduleCatchUp = "Latest"
	CatchUpAll    ScheduleCatchUp = "All"
)

// Reasons of a Schedule's conditions.
const (
	ReasonWaitingForRun   = "WaitingForRun"
	ReasonScheduleInvalid = "ScheduleInvalid"
	ReasonRunRefused      = "RunRefused"
	ReasonKindDisabled    = "KindDisabled"
	ReasonClockSkewed     = "ClockSkewed"
	ReasonRunSucceeded    = "RunSucceeded"
	ReasonRunFailed       = "RunFailed"
	ReasonTooManyFailures = "TooManyFailures"
	ReasonWhenFailed      = "WhenFailed"
)

// Reasons for which a time is missed.
const (
	// MissedSuspended: the Schedule was suspended.
	MissedSuspended = "Suspended"
	// MissedTooLate: the starting deadline was exceeded.
	MissedTooLate = "TooLate"
	// MissedSuperseded: a later time was due too.
	MissedSuperseded = "Superseded"
	// MissedScheduleChanged: the schedule was changed before the time could start.
	MissedScheduleChanged = "ScheduleChanged"
	// MissedRefused: the API server refused the run, or the broker the message.
	MissedRefused = "Refused"
	// MissedOutcomeUnknown: the broker did not confirm the message. It may have been sent.
	MissedOutcomeUnknown = "OutcomeUnknown"
	// MissedCanceled: the request for the run was withdrawn.
	MissedCanceled = "Canceled"
	// MissedWhenFalse: spec.when was false.
	MissedWhenFalse = "WhenFalse"
	// MissedWhenFailed: spec.when could not be evaluated.
	MissedWhenFailed = "WhenFailed"
)

// Events of a Schedule.
const (
	EventRunCreated   = "RunCreated"
	EventRunSucceeded = "RunSucceeded"
	EventRunFailed    = "RunFailed"
	EventTimesMissed  = "TimesMissed"
	EventRunReplaced  = "RunReplaced"
	EventRunBlocked   = "RunBlocked"
)

// ScheduleStatus is the observed state of a Schedule.
type ScheduleStatus struct {
	ObservedStatus `json:",inline"`

	// timetable in effect.
	// +optional
	Timetable *ScheduleTimetable `json:"timetable,omitempty"`

	// suspended is true until missed times are counted.
	// +optional
	Suspended bool `json:"suspended,omitempty"`

	// lastScheduleTime that was started or missed.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// nextScheduleTime, without jitter.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// lastSuccessfulTime of a run.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// pending run or message.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.scheduledTime)",message="scheduledTime is required",fieldPath=".scheduledTime"
	Pending *ScheduledRun `json:"pending,omitempty"`

	// rerun is the last accepted request.
	// +optional
	Rerun *ScheduleRerunStatus `json:"rerun,omitempty"`

	// active is the number of unfinished runs.
	// +optional
	// +kubebuilder:default=0
	Active int32 `json:"active"`

	// activeRuns are the oldest unfinished runs.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	ActiveRuns []ScheduledRun `json:"activeRuns,omitempty"`

	// runs is the number of started times.
	// +optional
	// +kubebuilder:default=0
	Runs int64 `json:"runs"`

	// failures is the number of runs that failed since the last success or suspension.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// missed is the number of missed times.
	// +optional
	// +kubebuilder:default=0
	Missed int64 `json:"missed"`

	// lastMissed is the last missed time.
	// +optional
	LastMissed *MissedTime `json:"lastMissed,omitempty"`
}

// ScheduleTimetable is what due times are computed from.
type ScheduleTimetable struct {
	Cron `json:",inline"`

	// since is when it took effect.
	Since metav1.Time `json:"since"`
}

// ScheduleRerunStatus is what became of a request.
type ScheduleRerunStatus struct {
	Rerun `json:",inline"`
	// since is when it was accepted.
	Since metav1.Time `json:"since"`
	// to is its last time. A backfill with more than 1000 times ends earlier than requested.
	To metav1.Time `json:"to"`
	// lastTime that was started or missed.
	// +optional
	LastTime *metav1.Time `json:"lastTime,omitempty"`
	// runs is the number of started times.
	// +optional
	Runs int32 `json:"runs,omitempty"`
	// missed is the number of missed times.
	// +optional
	Missed int32 `json:"missed,omitempty"`
	// left is the number of times that are not decided.
	// +optional
	// +kubebuilder:default=0
	Left int32 `json:"left"`
}

// ScheduledRun is a run or a message.
type ScheduledRun struct {
	// name of the run, or ID of the message.
	Name string `json:"name"`
	// scheduledTime of the run.
	// +optional
	ScheduledTime *metav1.Time `json:"scheduledTime,omitempty"`
	// rerunID of the request; empty if its time is of the timetable.
	// +optional
	RerunID string `json:"rerunID,omitempty"`
	// since is when the message was first sent.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// MissedTime is a time that was missed.
type MissedTime struct {
	// time that was missed.
	Time        metav1.Time `json:"time"`
	Explanation `json:",inline"`
}
