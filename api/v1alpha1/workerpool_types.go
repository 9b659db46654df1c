package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// WorkerPoolFinalizer is on a WorkerPool until its workers are drained.
const WorkerPoolFinalizer = Prefix + "drain"

// WorkerContainer is the name of the container in a WorkerPool's template that works.
const WorkerContainer = "worker"

// WorkerEnvPrefix begins the names of the environment variables that the operator sets.
const WorkerEnvPrefix = "YARDMASTER_"

// WorkerPool runs the workers of one or more queues. It scales them by what waits and how
// long, and drains each before it stops it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=wp,categories=yardmaster
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.currentRevision`
// +kubebuilder:printcolumn:name="Backlog",type=integer,JSONPath=`.status.backlog`
// +kubebuilder:printcolumn:name="SLO",type=string,JSONPath=`.status.slo.met`
// +kubebuilder:printcolumn:name="Decision",type=string,priority=1,JSONPath=`.status.lastDecision.reason`
// +kubebuilder:printcolumn:name="Max",type=integer,priority=1,JSONPath=`.spec.autoscaling.maxReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
type WorkerPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wanted pool.
	// +required
	Spec WorkerPoolSpec `json:"spec"`

	// status is what was seen of the pool, and what was decided.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status WorkerPoolStatus `json:"status,omitempty"`
}

// WorkerPoolList is a list of WorkerPools.
//
// +kubebuilder:object:root=true
type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkerPool `json:"items"`
}

// WorkerPoolSpec is the wanted pool. Durations are written as 500ms, 30s, 10m, 1h30m.
//
// drain is filled up, field by field, from the Policies that select the WorkerPool; only
// then do the defaults named there hold. status.effective has the outcome.
//
// +kubebuilder:validation:XValidation:rule="has(self.queues) != has(self.source)",message="give either queues or source"
// +kubebuilder:validation:XValidation:rule="has(self.replicas) != has(self.autoscaling)",message="give either replicas or autoscaling: who scales an autoscaled pool by hand changes autoscaling.minReplicas or pausedUntil"
// +kubebuilder:validation:XValidation:rule="(has(self.image) && size(self.image) > 0) || (has(self.template) && has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.exists(c, c.name == 'worker' && has(c.image)))",message="the worker has no image: give image, or an image to the container worker of template",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="!has(self.maxInFlight) || !has(self.concurrency) || self.maxInFlight >= self.concurrency",message="maxInFlight must not be less than concurrency: the rest of the handlers would never have work",fieldPath=".maxInFlight"
type WorkerPoolSpec struct {
	// queues the workers take messages from. All must be on one broker.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Queues []PoolQueue `json:"queues,omitempty"`

	// source is what to scale by when the workers take their work from somewhere that has
	// no Queue. They are scaled and drained, and that is all.
	// +optional
	Source *Source `json:"source,omitempty"`

	// template of the workers' Pods. The container that works is named worker; others run
	// beside it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy == 'Always'",message="restartPolicy must be Always: workers run until they are drained",fieldPath=".spec.restartPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.exists(c, c.name == 'worker')",message="one of the containers must be named worker",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata) || ((!has(self.metadata.labels) || self.metadata.labels.all(k, !k.startsWith('yardmaster.dev/'))) && (!has(self.metadata.annotations) || self.metadata.annotations.all(k, !k.startsWith('yardmaster.dev/'))))",message="labels and annotations under yardmaster.dev/ are reserved",fieldPath=".metadata"
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// image of the container worker, over the template's.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// version says what the image holds, as the label app.kubernetes.io/version. A change of
	// it is a new revision, also when the image keeps its name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Version string `json:"version,omitempty"`

	// env of the container worker, over the template's. Names that begin with YARDMASTER_
	// are the operator's.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.startsWith('YARDMASTER_'))",message="names that begin with YARDMASTER_ are reserved"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the container worker, over the template's.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// concurrency is how many messages one worker handles at once.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency int32 `json:"concurrency,omitempty"`

	// maxInFlight is how many messages one worker holds at once, those it has fetched in
	// advance included. Left out: concurrency, and those it will begin within a tenth of a
	// second.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// replicas is how many workers there are without autoscaling.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// autoscaling sets the number of workers by what waits and how long.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	// drain says how a worker is made to finish before it is stopped.
	// +optional
	Drain *Drain `json:"drain,omitempty"`

	// rollout says how workers of a new revision replace the old.
	// +optional
	// +kubebuilder:default={}
	Rollout *Rollout `json:"rollout,omitempty"`

	// disruption says how many workers others, such as a node's drain, may take at once.
	// +optional
	// +kubebuilder:default={}
	Disruption *Disruption `json:"disruption,omitempty"`

	// priority among the pools that share a Policy's replica budget: the greater first.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// preemption says what the pool does when that budget is used up. Never waits;
	// DrainLower drains workers of pools with lower priority, down to their minReplicas.
	// +optional
	// +kubebuilder:default=Never
	Preemption Preemption `json:"preemption,omitempty"`

	// workload the workers run in. A StatefulSet gives each a name of its own that stays.
	// +optional
	// +kubebuilder:default=Deployment
	Workload Workload `json:"workload,omitempty"`
}

// PoolQueue is a queue that workers take messages from.
type PoolQueue struct {
	// name of the Queue, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// weight is its share of the workers' attention beside the other queues' weights.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// Autoscaling sets the number of workers by what waits and how long.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas",fieldPath=".minReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.fallback) || self.fallback.replicas <= self.maxReplicas",message="fallback.replicas must not be greater than maxReplicas",fieldPath=".fallback.replicas"
type Autoscaling struct {
	// minReplicas there always are. With 0 the pool sleeps while there is nothing to do.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas there are never more of.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas int32 `json:"maxReplicas"`

	// slo is the waiting time to keep to.
	// +optional
	// +kubebuilder:default={}
	SLO *WaitObjective `json:"slo,omitempty"`

	// backlogPerReplica is how many waiting messages make a worker, beside the objective:
	// the greater number of workers holds. For work whose duration nobody can tell.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	BacklogPerReplica *int32 `json:"backlogPerReplica,omitempty"`

	// targetUtilizationPercent is how much of the workers' time steady work is to fill. The
	// rest is for what comes unevenly.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=100
	TargetUtilizationPercent int32 `json:"targetUtilizationPercent,omitempty"`

	// idleAfter is how long there must be nothing to do before the pool goes to 0, 0s to 24h.
	// It matters with minReplicas: 0 only.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="idleAfter must be a duration from 0s to 24h"
	IdleAfter *Duration `json:"idleAfter,omitempty"`

	// scaleUp slows growth. Left out: as many as are wanted, at once.
	// +optional
	ScaleUp *ScaleRule `json:"scaleUp,omitempty"`

	// scaleDown slows shrinking. Left out, or a field of it: window 15s,
	// maxStep 60%, period 30s.
	// +optional
	ScaleDown *ScaleRule `json:"scaleDown,omitempty"`

	// fallback is how many workers there are at least when nobody can tell what waits. Left
	// out: as many as there were.
	// +optional
	Fallback *Fallback `json:"fallback,omitempty"`

	// pausedUntil keeps the number of workers as it is until this time.
	// +optional
	PausedUntil *metav1.Time `json:"pausedUntil,omitempty"`

	// dryRun decides, and writes the decision into the status, but scales nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// WaitObjective is a waiting time to keep to.
type WaitObjective struct {
	// waitP95 is what 95 of 100 messages may wait at most, from when they are due until a
	// worker begins them, 1s to 24h.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="waitP95 must be a duration from 1s to 24h"
	WaitP95 *Duration `json:"waitP95,omitempty"`
}

// ScaleRule slows a pool's growth or shrinking.
type ScaleRule struct {
	// window in which every decision must have asked for the change, 0s to 1h. Growth goes
	// to the least that was wanted in it, shrinking to the most.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="window must be a duration from 0s to 1h"
	Window *Duration `json:"window,omitempty"`

	// maxStep is by how many workers the pool changes at most in one period: a number, or a
	// percentage of those there were when the growth or the shrinking began.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 10000 : string(self).matches('^[1-9][0-9]{0,3}%$')",message="maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%"
	MaxStep *intstr.IntOrString `json:"maxStep,omitempty"`

	// period of maxStep, 1s to 1h. Left out beside a maxStep: 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="period must be a duration from 1s to 1h"
	Period *Duration `json:"period,omitempty"`
}

// Fallback is for when nobody can tell what waits.
type Fallback struct {
	// replicas there are then at least.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`

	// after is how long nobody must have been able to tell, 0s to 24h.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="after must be a duration from 0s to 24h"
	After *Duration `json:"after,omitempty"`
}

// Drain says how a worker is made to finish before it is stopped.
type Drain struct {
	// mode of asking. HTTP posts to the worker's /drain; Sidecar runs our runtime beside a
	// worker of any language and posts to it; Signal sends SIGTERM and waits for the process
	// to end. Default HTTP.
	// +optional
	Mode DrainMode `json:"mode,omitempty"`

	// timeout is how long a worker may take to finish, 1s to 24h. Default 10m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be a duration from 1s to 24h"
	Timeout *Duration `json:"timeout,omitempty"`

	// onTimeout says what then. Wait says so in the condition DrainTimedOut and waits on;
	// Requeue gives the messages back to the queue and stops the worker. Default Wait.
	// +optional
	OnTimeout DrainTimeoutAction `json:"onTimeout,omitempty"`

	// terminationGrace is how long a drained worker has to end, and how long one has that is
	// stopped by others before it is killed, 0s to 24h. Default 60s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="terminationGrace must be a duration from 0s to 24h"
	TerminationGrace *Duration `json:"terminationGrace,omitempty"`
}

// Rollout says how workers of a new revision replace the old. At no time are there fewer
// than the wanted number less maxUnavailable, or more than it and maxSurge.
//
// +kubebuilder:validation:XValidation:rule="(has(self.strategy) && self.strategy == 'Canary') == has(self.steps)",message="steps are needed with strategy: Canary, and only with it",fieldPath=".steps"
// +kubebuilder:validation:XValidation:rule="!has(self.analysis) || has(self.strategy) && self.strategy == 'Canary'",message="analysis is for strategy: Canary",fieldPath=".analysis"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy == 'Recreate' || !has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%']) || !(string(self.maxUnavailable) in ['0', '0%'])",message="maxSurge and maxUnavailable cannot both be 0: nothing could be replaced",fieldPath=".maxSurge"
type Rollout struct {
	// strategy. Rolling replaces workers in batches; Canary in the steps given; Recreate
	// drains all old ones before it starts a new one.
	// +optional
	// +kubebuilder:default=Rolling
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// maxSurge is how many workers more than wanted there may be: a number or a percentage.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many workers fewer than wanted there may be.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// steps of a canary, each a greater part of the workers. After the last the rest follow.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self.map(s, s.percent).isSorted()",message="the steps' percentages must not shrink"
	Steps []RolloutStep `json:"steps,omitempty"`

	// analysis ends a canary that fails more often than the old revision. Left out: its
	// defaults.
	// +optional
	Analysis *RolloutAnalysis `json:"analysis,omitempty"`

	// progressDeadline is how long a rollout may make no progress before Progressing is
	// False, 1m to 24h. It is not given up then.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="progressDeadline must be a duration from 1m to 24h"
	ProgressDeadline *Duration `json:"progressDeadline,omitempty"`

	// revisionHistory is how many old revisions are kept to go back to.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	RevisionHistory *int32 `json:"revisionHistory,omitempty"`
}

// RolloutStep is a step of a canary.
type RolloutStep struct {
	// percent of the workers that are new in this step.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`

	// pause before the next step, 0s to 168h. Left out: until the analysis has minSamples.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('168h')",message="pause must be a duration from 0s to 168h"
	Pause *Duration `json:"pause,omitempty"`
}

// RolloutAnalysis compares a canary's failures with those of the old revision.
type RolloutAnalysis struct {
	// maxFailureRatioIncreasePercent is by how many percentage points more of the canary's
	// messages may fail. Over it the rollout pauses, and goes back.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxFailureRatioIncreasePercent *int32 `json:"maxFailureRatioIncreasePercent,omitempty"`

	// minSamples is how many messages the canary must have handled before it is judged.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSamples int32 `json:"minSamples,omitempty"`
}

// Disruption says how many workers others may take at once.
type Disruption struct {
	// maxUnavailable workers, a number or a percentage: what the PodDisruptionBudget has.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// DrainMode says how a worker is asked to finish.
// +kubebuilder:validation:Enum=HTTP;Sidecar;Signal
type DrainMode string

// The drain modes.
const (
	DrainHTTP    DrainMode = "HTTP"
	DrainSidecar DrainMode = "Sidecar"
	DrainSignal  DrainMode = "Signal"
)

// DrainTimeoutAction says what is done with a worker that does not finish.
// +kubebuilder:validation:Enum=Wait;Requeue
type DrainTimeoutAction string

// The drain timeout actions.
const (
	DrainWait    DrainTimeoutAction = "Wait"
	DrainRequeue DrainTimeoutAction = "Requeue"
)

// RolloutStrategy says how new workers replace old ones.
// +kubebuilder:validation:Enum=Rolling;Canary;Recreate
type RolloutStrategy string

// The rollout strategies.
const (
	RolloutRolling  RolloutStrategy = "Rolling"
	RolloutCanary   RolloutStrategy = "Canary"
	RolloutRecreate RolloutStrategy = "Recreate"
)

// Preemption says what a pool does when the replica budget is used up.
// +kubebuilder:validation:Enum=Never;DrainLower
type Preemption string

// The preemptions.
const (
	PreemptNever      Preemption = "Never"
	PreemptDrainLower Preemption = "DrainLower"
)

// Workload is what workers run in.
// +kubebuilder:validation:Enum=Deployment;StatefulSet
type Workload string

// The workloads.
const (
	WorkloadDeployment  Workload = "Deployment"
	WorkloadStatefulSet Workload = "StatefulSet"
)
