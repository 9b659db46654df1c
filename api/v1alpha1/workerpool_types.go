package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// WorkerPoolFinalizer protects a WorkerPool until its workers are drained.
const WorkerPoolFinalizer = Prefix + "drain"

// WorkerContainer is the name of the worker container in a WorkerPool's template.
const WorkerContainer = "worker"

// WorkerEnvPrefix is the prefix of environment variables that the operator sets.
const WorkerEnvPrefix = "YARDMASTER_"

// WorkerPool runs the workers of one or more queues. It scales them by backlog and waiting time,
// and drains each worker before it stops.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=wp,categories=yardmaster
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.currentRevision`
// +kubebuilder:printcolumn:name="Backlog",type=integer,JSONPath=`.status.backlog`
// +kubebuilder:printcolumn:name="SLO",type=string,JSONPath=`.status.objectiveMet`
// +kubebuilder:printcolumn:name="Decision",type=string,priority=1,JSONPath=`.status.lastDecision.reason`
// +kubebuilder:printcolumn:name="Max",type=integer,priority=1,JSONPath=`.spec.autoscaling.maxReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
type WorkerPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the pool.
	// +required
	Spec WorkerPoolSpec `json:"spec"`

	// status is the observed state of the pool.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
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

// WorkerPoolSpec is the desired state of a WorkerPool. Policies that select it set defaults; status.effective
// shows the result.
//
// +kubebuilder:validation:XValidation:rule="has(self.queues) != has(self.source)",message="set either queues or source"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.replicas) || self.replicas == 1",message="set either replicas or autoscaling; to influence an autoscaled pool, change autoscaling.minReplicas, autoscaling.maxReplicas or autoscaling.suspend"
// +kubebuilder:validation:XValidation:rule="(has(self.image) && size(self.image) > 0) || (has(self.template) && has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.exists(c, c.name == 'worker' && has(c.image)))",message="the worker has no image: set image, or the image of container worker in template",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="!has(self.maxInFlight) || !has(self.concurrency) || self.maxInFlight >= self.concurrency",message="maxInFlight must not be less than concurrency, because some handlers would never get a message",fieldPath=".maxInFlight"
type WorkerPoolSpec struct {
	// queues that the workers consume, at most 16, on one broker.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Queues []PoolQueue `json:"queues,omitempty"`

	// source of the backlog, for workers that consume no Queue. They are scaled and drained, but get no configuration.
	// +optional
	Source *Source `json:"source,omitempty"`

	// template of the Pods. The worker container is named worker; others run next to it. In drain mode Sidecar, an init
	// container named yardmaster has env and resources for the sidecar.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy == 'Always'",message="restartPolicy must be Always, because workers run until they are drained",fieldPath=".spec.restartPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.exists(c, c.name == 'worker')",message="one of the containers must be named worker",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata) || ((!has(self.metadata.labels) || self.metadata.labels.all(k, !k.startsWith('yardmaster.dev/'))) && (!has(self.metadata.annotations) || self.metadata.annotations.all(k, !k.startsWith('yardmaster.dev/'))))",message="labels and annotations under yardmaster.dev/ are reserved",fieldPath=".metadata"
	// +kubebuilder:validation:XValidation:rule="self.?spec.?containers.orValue([]).size() <= 64 && self.?spec.?evictionResponders.orValue([]).size() <= 256 && self.?spec.?hostAliases.orValue([]).size() <= 256 && self.?spec.?imagePullSecrets.orValue([]).size() <= 256 && self.?spec.?initContainers.orValue([]).size() <= 64 && self.?spec.?readinessGates.orValue([]).size() <= 256 && self.?spec.?resourceClaims.orValue([]).size() <= 256 && self.?spec.?schedulingGates.orValue([]).size() <= 256 && self.?spec.?tolerations.orValue([]).size() <= 256 && self.?spec.?topologySpreadConstraints.orValue([]).size() <= 256 && self.?spec.?volumes.orValue([]).size() <= 256",message="a template may have at most 64 containers of each type, and 256 of each other list",fieldPath=".spec"
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// image of the worker container. Overrides that of template.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// version of the image, for the label app.kubernetes.io/version. A change creates a revision.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Version string `json:"version,omitempty"`

	// handlerPath of the URL that messages are sent to in drain mode Sidecar, on the first port of the worker container.
	// Defaults to /.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[-A-Za-z0-9._~/]*$`
	HandlerPath string `json:"handlerPath,omitempty"`

	// networkPolicy is Managed, which closes the admin port of the workers to all Pods but the operator's, or None.
	// Defaults to Managed.
	// +optional
	// +kubebuilder:default=Managed
	NetworkPolicy PoolNetworkPolicy `json:"networkPolicy,omitempty"`

	// concurrency is how many messages a worker handles at a time, 1 to 10000. Defaults to 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency int32 `json:"concurrency,omitempty"`

	// maxInFlight is how many messages a worker holds, 1 to 100000. Unset means concurrency and what it starts within
	// a tenth of a second.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// replicas is the number of workers without autoscaling, 0 to 10000. With autoscaling it is 1 or unset, without
	// effect. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// autoscaling sets the number of workers from backlog and waiting time.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	WorkerSettings `json:",inline"`

	// rollout is how workers of a new revision replace old ones.
	// +optional
	// +kubebuilder:default={}
	Rollout *Rollout `json:"rollout,omitempty"`

	// disruption limits how many workers are evicted at a time, such as by the drain of a node.
	// +optional
	// +kubebuilder:default={}
	Disruption *Disruption `json:"disruption,omitempty"`

	// priority among the pools that share a replica budget, -1000 to 1000: higher values first. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// preemption is what happens when the replica budget is exhausted: Never waits, DrainLower drains workers of pools
	// with a lower priority. Defaults to Never.
	// +optional
	// +kubebuilder:default=Never
	Preemption Preemption `json:"preemption,omitempty"`

	// workload that runs the workers. A StatefulSet gives them stable names. Defaults to Deployment.
	// +optional
	// +kubebuilder:default=Deployment
	Workload Workload `json:"workload,omitempty"`
}

// WorkerSettings are the settings of a WorkerPool for which Policies have defaults. Each field applies on its own.
type WorkerSettings struct {
	// drain is how a worker finishes its messages before it stops.
	// +optional
	Drain *Drain `json:"drain,omitempty"`

	// circuitBreaker stops a worker from taking messages while most of them fail. Unset means none.
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`
}

// PoolQueue is a queue that workers consume.
type PoolQueue struct {
	LocalReference `json:",inline"`
	Share          `json:",inline"`
}

// Autoscaling sets the number of workers from backlog and waiting time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas",fieldPath=".minReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.fallback) || self.fallback.replicas <= self.maxReplicas",message="fallback.replicas must not be greater than maxReplicas",fieldPath=".fallback.replicas"
type Autoscaling struct {
	// minReplicas is the lower bound, 0 to 10000. With 0, an idle pool has no workers. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the upper bound, 1 to 10000.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas int32 `json:"maxReplicas"`

	// waitP95 is the objective for the 95th percentile of the time from when a message is due until a worker starts
	// it, 1s to 24h. Defaults to 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="waitP95 must be a duration from 1s to 24h"
	WaitP95 *Duration `json:"waitP95,omitempty"`

	// backlogPerReplica is the number of messages per worker, 1 to 1000000. The larger of this recommendation and that
	// of waitP95 applies. With a source it defaults to the target that the source names, or while the service time is
	// unknown to concurrency, but at least 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	BacklogPerReplica *int32 `json:"backlogPerReplica,omitempty"`

	// idleAfter is the time without messages after which the pool scales to zero, if minReplicas is 0, 0s to 24h.
	// Defaults to 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="idleAfter must be a duration from 0s to 24h"
	IdleAfter *Duration `json:"idleAfter,omitempty"`

	// scaleUp slows scaling up. Unset means at once.
	// +optional
	ScaleUp *ScaleRule `json:"scaleUp,omitempty"`

	// scaleDown slows scaling down. Defaults to a window of 15s, a maxStep of 60% and a period of 30s.
	// +optional
	ScaleDown *ScaleRule `json:"scaleDown,omitempty"`

	// fallback is the minimum number of workers while metrics are unavailable. Unset means that the number does not
	// change.
	// +optional
	Fallback *Fallback `json:"fallback,omitempty"`

	// suspend keeps the number of workers. Decisions are still reported in status.lastDecision. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ScaleRule slows scaling in one direction.
type ScaleRule struct {
	// window during which all recommendations must agree with a change, 0s to 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="window must be a duration from 0s to 1h"
	Window *Duration `json:"window,omitempty"`

	// maxStep is the largest change within one period: a number, or a percentage of the workers at its start.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 10000 : string(self).matches('^[1-9][0-9]{0,3}%$')",message="maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%"
	MaxStep *intstr.IntOrString `json:"maxStep,omitempty"`

	// period of maxStep, 1s to 1h. Defaults to 10s, or 30s with the default maxStep.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="period must be a duration from 1s to 1h"
	Period *Duration `json:"period,omitempty"`
}

// Fallback applies while queue metrics are unavailable.
type Fallback struct {
	// replicas is the minimum number of workers, 0 to 10000.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`

	// after is how long metrics must be unavailable, 0s to 24h. Defaults to 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="after must be a duration from 0s to 24h"
	After *Duration `json:"after,omitempty"`
}

// PoolNetworkPolicy is who creates the NetworkPolicy that protects the workers' admin port.
//
// +kubebuilder:validation:Enum=Managed;None
type PoolNetworkPolicy string

// The values of networkPolicy.
const (
	// PoolNetworkPolicyManaged means that the operator does.
	PoolNetworkPolicyManaged PoolNetworkPolicy = "Managed"
	// PoolNetworkPolicyNone means that the operator does not.
	PoolNetworkPolicyNone PoolNetworkPolicy = "None"
)

// Drain configures how a worker finishes its messages before it stops.
type Drain struct {
	// mode is HTTP, a POST to /drain of the worker, Sidecar, the worker runtime next to a worker in any language, or
	// Signal, SIGTERM. Defaults to HTTP.
	// +optional
	Mode DrainMode `json:"mode,omitempty"`

	// timeout is how long a worker may take to finish its messages, 1s to 24h. Defaults to 10m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be a duration from 1s to 24h"
	Timeout *Duration `json:"timeout,omitempty"`

	// onTimeout is what happens then. Wait reports the condition Degraded, Requeue returns the messages and stops the
	// worker. Defaults to Wait.
	// +optional
	OnTimeout DrainTimeoutAction `json:"onTimeout,omitempty"`

	// terminationGrace is how long a drained worker may take to exit, and an evicted one until it is killed, 0s to
	// 24h. Defaults to timeout plus 60s, or 60s in mode Signal or with onTimeout Requeue.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="terminationGrace must be a duration from 0s to 24h"
	TerminationGrace *Duration `json:"terminationGrace,omitempty"`
}

// CircuitBreaker stops a worker from taking messages while most of them fail, for example because
// a dependency is down.
type CircuitBreaker struct {
	// failureThresholdPercent is the percentage of failed messages that opens the circuit, 1 to 100. Defaults to 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThresholdPercent *int32 `json:"failureThresholdPercent,omitempty"`

	// window in which failures are counted, 1s to 1h. Defaults to 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="window must be a duration from 1s to 1h"
	Window *Duration `json:"window,omitempty"`

	// minSamples is the minimum number of messages in the window, 1 to 1000000. Defaults to 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSamples *int32 `json:"minSamples,omitempty"`

	// cooldown before the worker tries one message, 1s to 1h. Defaults to 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="cooldown must be a duration from 1s to 1h"
	Cooldown *Duration `json:"cooldown,omitempty"`
}

// Rollout configures how workers of a new revision replace old ones. Unless strategy is Recreate, the
// number of workers stays between desired minus maxUnavailable and desired plus maxSurge.
//
// +kubebuilder:validation:XValidation:rule="(has(self.strategy) && self.strategy == 'Canary') == has(self.steps)",message="steps are required with strategy Canary, and not allowed with other strategies",fieldPath=".steps"
// +kubebuilder:validation:XValidation:rule="!has(self.analysis) || has(self.strategy) && self.strategy == 'Canary'",message="analysis requires strategy Canary",fieldPath=".analysis"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy == 'Recreate' || !has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%']) || !(string(self.maxUnavailable) in ['0', '0%'])",message="maxSurge and maxUnavailable must not both be 0, because no worker could be replaced",fieldPath=".maxSurge"
type Rollout struct {
	// strategy of the rollout. Rolling replaces workers in batches, Canary in steps, Recreate drains all old workers
	// first. Defaults to Rolling.
	// +optional
	// +kubebuilder:default=Rolling
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// maxSurge is how many workers more than desired may exist: a number or a percentage. Defaults to 25%.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many workers fewer than desired may serve: a number or a percentage. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// steps of a canary, at most 20, with percentages that do not decrease. Afterwards all workers are replaced.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self.map(s, s.percent).isSorted()",message="the percentages of the steps must not decrease"
	Steps []RolloutStep `json:"steps,omitempty"`

	// analysis stops a canary that fails more often than the old revision. Unset means its defaults.
	// +optional
	Analysis *RolloutAnalysis `json:"analysis,omitempty"`

	// progressDeadline is how long a rollout may make no progress until Progressing is False, 1m to 24h. Defaults to
	// 30m.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="progressDeadline must be a duration from 1m to 24h"
	ProgressDeadline *Duration `json:"progressDeadline,omitempty"`

	// revisionHistory is how many old revisions are kept, 0 to 10. Defaults to 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	RevisionHistory *int32 `json:"revisionHistory,omitempty"`
}

// RolloutStep is a step of a canary.
type RolloutStep struct {
	// percent of the workers that are of the new revision, 1 to 100.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`

	// pause before the next step, 0s to 168h. Unset means until the analysis has minSamples.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('168h')",message="pause must be a duration from 0s to 168h"
	Pause *Duration `json:"pause,omitempty"`
}

// RolloutAnalysis compares the failures of a canary with those of the old revision.
type RolloutAnalysis struct {
	// maxFailureRatioIncreasePercent is the increase of the failure ratio, in percentage points, above which the
	// canary is rolled back, 0 to 100. Defaults to 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxFailureRatioIncreasePercent *int32 `json:"maxFailureRatioIncreasePercent,omitempty"`

	// minSamples is the number of messages that the canary must handle first, 1 to 1000000. Defaults to 20.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSamples int32 `json:"minSamples,omitempty"`
}

// Disruption limits evictions of workers.
type Disruption struct {
	// maxUnavailable of the PodDisruptionBudget: a number or a percentage. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// DrainMode is how a worker receives the request to drain.
// +kubebuilder:validation:Enum=HTTP;Sidecar;Signal
type DrainMode string

// The drain modes.
const (
	DrainHTTP    DrainMode = "HTTP"
	DrainSidecar DrainMode = "Sidecar"
	DrainSignal  DrainMode = "Signal"
)

// DrainTimeoutAction is what happens to a worker that does not drain in time.
// +kubebuilder:validation:Enum=Wait;Requeue
type DrainTimeoutAction string

// The drain timeout actions.
const (
	DrainWait    DrainTimeoutAction = "Wait"
	DrainRequeue DrainTimeoutAction = "Requeue"
)

// RolloutStrategy is how new workers replace old ones.
// +kubebuilder:validation:Enum=Rolling;Canary;Recreate
type RolloutStrategy string

// The rollout strategies.
const (
	RolloutRolling  RolloutStrategy = "Rolling"
	RolloutCanary   RolloutStrategy = "Canary"
	RolloutRecreate RolloutStrategy = "Recreate"
)

// Preemption is what a pool does when its replica budget is exhausted.
// +kubebuilder:validation:Enum=Never;DrainLower
type Preemption string

// The preemptions.
const (
	PreemptNever      Preemption = "Never"
	PreemptDrainLower Preemption = "DrainLower"
)

// Workload is the kind of object that runs the workers.
// +kubebuilder:validation:Enum=Deployment;StatefulSet
type Workload string

// The workloads.
const (
	WorkloadDeployment  Workload = "Deployment"
	WorkloadStatefulSet Workload = "StatefulSet"
)
