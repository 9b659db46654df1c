package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Schedule starts a SequentialJob or an AgenticSession, or sends a message to a Queue, at the times of a cron
// expression, as a CronJob starts Jobs.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sched,categories=all;yardmaster
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.active`
// +kubebuilder:printcolumn:name="Last Schedule",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Last Run Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="LastRunSucceeded")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Timezone",type=string,priority=1,JSONPath=`.spec.timeZone`
// +kubebuilder:printcolumn:name="Missed",type=integer,priority=1,JSONPath=`.status.missed`
// +kubebuilder:printcolumn:name="Last Success",type=date,priority=1,JSONPath=`.status.lastSuccessfulTime`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 41",message="metadata.name has at most 41 characters: each run appends its time"
type Schedule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to start, and when.
	// +required
	Spec ScheduleSpec `json:"spec"`

	// status is the observed state of the schedule.
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
type ScheduleSpec struct {
	Cron `json:",inline"`

	// concurrencyPolicy is what happens at a due time while an earlier run is active: Allow starts another run;
	// Forbid waits until no run is active; Replace deletes the active runs first. Defaults to Allow.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ScheduleConcurrency `json:"concurrencyPolicy,omitempty"`

	// startingDeadlineSeconds is how late a run may start, jitter included. Defaults to no limit, and to 60 with
	// catchUp: None.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// suspend keeps further runs from starting. Times that come meanwhile are missed. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// catchUp defines which times still run if several are due: None runs a time only if it is at most a minute
	// late; Latest runs the last; All runs all, at most the last 100. Defaults to Latest.
	// +optional
	// +kubebuilder:default=Latest
	CatchUp ScheduleCatchUp `json:"catchUp,omitempty"`

	// jitter delays each run by a random time that is less than this. A run always starts before the next time is
	// due. Defaults to 0s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="jitter must be a duration from 0s to 24h"
	Jitter *Duration `json:"jitter,omitempty"`

	// history is how many finished runs are kept.
	// +optional
	// +kubebuilder:default={}
	History ScheduleHistory `json:"history,omitempty"`

	// sequentialJob is the SequentialJob of each run. Its steps have the time of the run as the environment variable
	// SCHEDULED_TIME.
	// +optional
	SequentialJob *ScheduleTemplate `json:"sequentialJob,omitempty"`

	// agenticSession is the AgenticSession of each run. It has the time as the environment variable SCHEDULED_TIME.
	// Its owner is the user who last changed this field.
	// +optional
	AgenticSession *ScheduleTemplate `json:"agenticSession,omitempty"`

	// message is sent to a Queue at each time. It has the time as the header Scheduled-Time, and an ID that is
	// derived from it.
	// +optional
	Message *ScheduledMessage `json:"message,omitempty"`
}

// Cron is a schedule in a time zone.
type Cron struct {
	// schedule is a cron expression with five fields, as in batch/v1 CronJob, or @hourly, @daily, @weekly, @monthly
	// or @yearly.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`

	// timeZone is the name of the time zone of the schedule, such as Europe/Berlin. Defaults to UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// ScheduledMessage is the message of each time.
type ScheduledMessage struct {
	// queueRef is the Queue.
	// +required
	QueueRef LocalReference `json:"queueRef"`

	// payload is any value. It is sent as JSON. Defaults to an empty payload.
	// +optional
	Payload *apiextensionsv1.JSON `json:"payload,omitempty"`

	// kind of the message, which selects its handler.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Kind string `json:"kind,omitempty"`

	// priority of the Queue. Defaults to the priority named default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Priority string `json:"priority,omitempty"`

	// timeout of each attempt, 1s to 24h. Defaults to that of the Queue.
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

	// spec of each run. Admission tries it in a dry run. ttlSecondsAfterFinished must be at least 60.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	Spec runtime.RawExtension `json:"spec"`
}

// ScheduleHistory is how many finished runs are kept. Older ones are deleted, with their Jobs.
type ScheduleHistory struct {
	// successful runs that are kept. Defaults to 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Successful *int32 `json:"successful,omitempty"`
	// failed is the number of other finished runs that are kept. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Failed *int32 `json:"failed,omitempty"`
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

	// timetable is what due times are computed from until a change of the spec takes effect.
	// +optional
	Timetable *ScheduleTimetable `json:"timetable,omitempty"`

	// suspended is true from the observation of spec.suspend until the times that came meanwhile are counted as
	// missed.
	// +optional
	Suspended bool `json:"suspended,omitempty"`

	// lastScheduleTime is the last time that was started or missed. It only moves forward.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// nextScheduleTime is the next time, without jitter.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// lastSuccessfulTime is when a run last succeeded.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// pending is the run that is being created, or the message that is being sent.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.scheduledTime)",message="scheduledTime is required",fieldPath=".scheduledTime"
	Pending *ScheduledRun `json:"pending,omitempty"`

	// active is the number of runs that have not finished.
	// +optional
	// +kubebuilder:default=0
	Active int32 `json:"active"`

	// activeRuns are the oldest runs that have not finished, at most 50.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	ActiveRuns []ScheduledRun `json:"activeRuns,omitempty"`

	// runs is the number of times that were started.
	// +optional
	// +kubebuilder:default=0
	Runs int64 `json:"runs"`

	// missed is the number of times that were missed.
	// +optional
	// +kubebuilder:default=0
	Missed int64 `json:"missed"`

	// lastMissed is the last time that was missed.
	// +optional
	LastMissed *MissedTime `json:"lastMissed,omitempty"`
}

// ScheduleTimetable is what due times are computed from.
type ScheduleTimetable struct {
	Cron `json:",inline"`

	// since is when it took effect. Earlier times are not due.
	Since metav1.Time `json:"since"`
}

// ScheduledRun is a run that is being created or has not finished, or a message that is being sent.
type ScheduledRun struct {
	// name of the run, or ID of the message.
	Name string `json:"name"`
	// uid of the run. Absent while it is being created.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// scheduledTime of the run. Absent if it was triggered.
	// +optional
	ScheduledTime *metav1.Time `json:"scheduledTime,omitempty"`
	// since is when the message was first sent. Absent while it is known not to be in its queue.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// MissedTime is a time that was missed.
type MissedTime struct {
	// time that was missed.
	Time metav1.Time `json:"time"`
	// reason why: Suspended, TooLate, Superseded, ScheduleChanged, Refused or OutcomeUnknown.
	Reason string `json:"reason"`
	// message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// generation is the metadata.generation of the Schedule when it was missed.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}
