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

// WorkerPoolSpec is the desired state of a WorkerPool. Durations are written as 500ms, 30s, 10m or
// 1h30m.
//
// Fields of drain that are omitted are taken from the Policies that select the WorkerPool, and
// then from the defaults named here. status.effective shows the result.
//
// +kubebuilder:validation:XValidation:rule="has(self.queues) != has(self.source)",message="set either queues or source"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.replicas) || self.replicas == 1",message="set either replicas or autoscaling; to influence an autoscaled pool, change autoscaling.minReplicas, autoscaling.maxReplicas or autoscaling.suspend"
// +kubebuilder:validation:XValidation:rule="(has(self.image) && size(self.image) > 0) || (has(self.template) && has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.exists(c, c.name == 'worker' && has(c.image)))",message="the worker has no image: set image, or the image of container worker in template",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="!has(self.maxInFlight) || !has(self.concurrency) || self.maxInFlight >= self.concurrency",message="maxInFlight must not be less than concurrency, because some handlers would never get a message",fieldPath=".maxInFlight"
type WorkerPoolSpec struct {
	// queues that the workers consume, at most 16. All must be on one broker.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Queues []PoolQueue `json:"queues,omitempty"`

	// source of the backlog, for workers that consume no Queue. Such workers are scaled and
	// drained, but get no configuration.
	// +optional
	Source *Source `json:"source,omitempty"`

	// template of the workers' Pods. The worker container must be named worker. Other containers
	// run next to it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy == 'Always'",message="restartPolicy must be Always, because workers run until they are drained",fieldPath=".spec.restartPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.exists(c, c.name == 'worker')",message="one of the containers must be named worker",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata) || ((!has(self.metadata.labels) || self.metadata.labels.all(k, !k.startsWith('yardmaster.dev/'))) && (!has(self.metadata.annotations) || self.metadata.annotations.all(k, !k.startsWith('yardmaster.dev/'))))",message="labels and annotations under yardmaster.dev/ are reserved",fieldPath=".metadata"
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// image of the worker container. Overrides the image in template.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// version of the image, for the label app.kubernetes.io/version. A change creates a revision,
	// even if the image has the same name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Version string `json:"version,omitempty"`

	// sidecar configures the operator's worker runtime in drain mode Sidecar.
	// +optional
	Sidecar *Sidecar `json:"sidecar,omitempty"`

	// networkPolicy of the workers. Managed closes their admin port to all Pods but the operator's,
	// and leaves all other ports as they are. None restricts nothing. Default Managed.
	// +optional
	// +kubebuilder:default=Managed
	NetworkPolicy PoolNetworkPolicy `json:"networkPolicy,omitempty"`

	// podMonitor of the workers, which exists in clusters with that kind.
	// +optional
	PodMonitor *PodMonitor `json:"podMonitor,omitempty"`

	// concurrency is the number of messages that one worker handles at the same time. Default 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency int32 `json:"concurrency,omitempty"`

	// maxInFlight is the number of messages that one worker holds, including prefetched ones. If
	// it is omitted, a worker prefetches the messages that it will start within a tenth of a
	// second.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// replicas is the number of workers without autoscaling, 0 to 10000. With autoscaling it must be
	// omitted or 1, and has no effect: the scale subresource requires a value.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// autoscaling sets the number of workers from backlog and waiting time.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	WorkerSettings `json:",inline"`

	// rollout configures how workers of a new revision replace old ones.
	// +optional
	// +kubebuilder:default={}
	Rollout *Rollout `json:"rollout,omitempty"`

	// disruption limits how many workers may be evicted at the same time, for example by the drain
	// of a node.
	// +optional
	// +kubebuilder:default={}
	Disruption *Disruption `json:"disruption,omitempty"`

	// priority among the pools that share the replica budget of a Policy. A higher value takes
	// precedence. Default 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// preemption configures what the pool does when the replica budget is exhausted. Never waits.
	// DrainLower drains workers of pools with a lower priority, down to their minReplicas. Default
	// Never.
	// +optional
	// +kubebuilder:default=Never
	Preemption Preemption `json:"preemption,omitempty"`

	// workload that runs the workers. A StatefulSet gives each worker a stable name. Default
	// Deployment.
	// +optional
	// +kubebuilder:default=Deployment
	Workload Workload `json:"workload,omitempty"`
}

// WorkerSettings are the settings of a WorkerPool for which Policies have defaults. Each field applies on its own.
type WorkerSettings struct {
	// drain is how a worker finishes its messages before it stops.
	// +optional
	Drain *Drain `json:"drain,omitempty"`
}

// PoolQueue is a queue that workers consume.
type PoolQueue struct {
	// name of the Queue, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// weight is the share of this queue relative to the weights of the other queues, 1 to 100.
	// Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// Autoscaling sets the number of workers from backlog and waiting time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas",fieldPath=".minReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.fallback) || self.fallback.replicas <= self.maxReplicas",message="fallback.replicas must not be greater than maxReplicas",fieldPath=".fallback.replicas"
type Autoscaling struct {
	// minReplicas is the lower bound on the number of workers. With 0 the pool scales to zero when
	// it is idle. Default 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the upper bound on the number of workers.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas int32 `json:"maxReplicas"`

	// waitP95 is the objective for the 95th percentile of waiting times, from when a message is due until a worker starts
	// it, 1s to 24h. Defaults to 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="waitP95 must be a duration from 1s to 24h"
	WaitP95 *Duration `json:"waitP95,omitempty"`

	// backlogPerReplica is the number of messages, waiting or being handled, per worker. The larger of
	// this recommendation and that of the objective applies. Use it when the time to handle a
	// message is unknown. Default for a pool with a source: the target that the source names, or
	// else concurrency, but at least 5, while workers report no service time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	BacklogPerReplica *int32 `json:"backlogPerReplica,omitempty"`

	// targetUtilizationPercent is the target utilization of workers under steady load, 10 to 100.
	// The rest is capacity for fluctuations. Default 80.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=100
	TargetUtilizationPercent int32 `json:"targetUtilizationPercent,omitempty"`

	// idleAfter is the time without messages after which the pool scales to zero, 0s to 24h. It
	// applies only with minReplicas 0. Default 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="idleAfter must be a duration from 0s to 24h"
	IdleAfter *Duration `json:"idleAfter,omitempty"`

	// scaleUp slows scaling up. If it is omitted, the pool scales up at once.
	// +optional
	ScaleUp *ScaleRule `json:"scaleUp,omitempty"`

	// scaleDown slows scaling down. Defaults: window 15s, maxStep 60%, period 30s.
	// +optional
	ScaleDown *ScaleRule `json:"scaleDown,omitempty"`

	// fallback is the minimum number of workers while queue metrics are unavailable. If it is
	// omitted, the number of workers does not change.
	// +optional
	Fallback *Fallback `json:"fallback,omitempty"`

	// suspend keeps the number of workers as it is. Decisions are still computed and reported in status.lastDecision.
	// Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ScaleRule slows scaling in one direction.
type ScaleRule struct {
	// window during which all recommendations must agree with a change, 0s to 1h. The pool scales
	// up to the lowest recommendation of the window, and down to the highest.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="window must be a duration from 0s to 1h"
	Window *Duration `json:"window,omitempty"`

	// maxStep is the largest change of the number of workers within one period: a number, or a
	// percentage of the workers at the start of the change.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 10000 : string(self).matches('^[1-9][0-9]{0,3}%$')",message="maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%"
	MaxStep *intstr.IntOrString `json:"maxStep,omitempty"`

	// period of maxStep, 1s to 1h. Default 10s if maxStep is set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="period must be a duration from 1s to 1h"
	Period *Duration `json:"period,omitempty"`
}

// Fallback applies while queue metrics are unavailable.
type Fallback struct {
	// replicas is the minimum number of workers.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`

	// after is how long metrics must be unavailable before the fallback applies, 0s to 24h.
	// Default 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="after must be a duration from 0s to 24h"
	After *Duration `json:"after,omitempty"`
}

// Sidecar configures the container that sends messages to the worker, in drain mode Sidecar.
type Sidecar struct {
	// path of the URL that messages are sent to, on the first port of the worker container. Default /.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[-A-Za-z0-9._~/]*$`
	Path string `json:"path,omitempty"`

	// resources of the container. Default: requests of 20m CPU and 32Mi memory, limits of 1 CPU and 256Mi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// env of the container, for example OTEL_EXPORTER_OTLP_ENDPOINT to trace jobs. Names with the prefix YARDMASTER_
	// are reserved.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.startsWith('YARDMASTER_'))",message="names that begin with YARDMASTER_ are reserved"
	Env []corev1.EnvVar `json:"env,omitempty"`
}

// PodMonitor configures the PodMonitor of a pool.
type PodMonitor struct {
	// labels of the PodMonitor, by which a Prometheus selects it, for example release: prometheus.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="labels must have valid keys and values"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('yardmaster.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels under yardmaster.dev/ and app.kubernetes.io/ are reserved"
	Labels map[string]MetadataLabelValue `json:"labels,omitempty"`
}

// MetadataLabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type MetadataLabelValue string

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
	// mode of draining. HTTP sends a POST request to the worker's /drain. Sidecar runs the
	// operator's worker runtime next to a worker in any language, and sends the request to it.
	// Signal sends SIGTERM and waits for the process to exit. Default HTTP.
	// +optional
	Mode DrainMode `json:"mode,omitempty"`

	// timeout is how long a worker may take to finish its messages, 1s to 24h. Default 10m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be a duration from 1s to 24h"
	Timeout *Duration `json:"timeout,omitempty"`

	// onTimeout configures what happens after the timeout. Wait reports the condition
	// Degraded and continues to wait. Requeue returns the messages to the queue and stops the
	// worker. Default Wait.
	// +optional
	OnTimeout DrainTimeoutAction `json:"onTimeout,omitempty"`

	// terminationGrace is how long a drained worker may take to exit, and how long a worker that
	// is evicted or deleted has before it is killed, 0s to 24h. In mode Signal, timeout is added to it.
	// A change of the default creates no revision: it applies to the next one. Default: timeout plus 60s, at most 24h;
	// 60s in mode Signal or with onTimeout Requeue.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="terminationGrace must be a duration from 0s to 24h"
	TerminationGrace *Duration `json:"terminationGrace,omitempty"`
}

// Rollout configures how workers of a new revision replace old ones. The number of workers stays
// between desired minus maxUnavailable and desired plus maxSurge.
//
// +kubebuilder:validation:XValidation:rule="(has(self.strategy) && self.strategy == 'Canary') == has(self.steps)",message="steps are required with strategy Canary, and not allowed with other strategies",fieldPath=".steps"
// +kubebuilder:validation:XValidation:rule="!has(self.analysis) || has(self.strategy) && self.strategy == 'Canary'",message="analysis requires strategy Canary",fieldPath=".analysis"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) && self.strategy == 'Recreate' || !has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%']) || !(string(self.maxUnavailable) in ['0', '0%'])",message="maxSurge and maxUnavailable must not both be 0, because no worker could be replaced",fieldPath=".maxSurge"
type Rollout struct {
	// strategy of the rollout. Rolling replaces workers in batches. Canary replaces them in steps.
	// Recreate drains all old workers before it starts new ones. Default Rolling.
	// +optional
	// +kubebuilder:default=Rolling
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// maxSurge is how many workers more than desired may exist: a number or a percentage. Default
	// 25%.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many workers fewer than desired may serve: a number or a percentage.
	// Default 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 10000 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// steps of a canary, at most 20, with increasing percentages. After the last step all other
	// workers are replaced.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self.map(s, s.percent).isSorted()",message="the percentages of the steps must not decrease"
	Steps []RolloutStep `json:"steps,omitempty"`

	// analysis stops a canary that fails more often than the old revision. If it is omitted, its
	// defaults apply.
	// +optional
	Analysis *RolloutAnalysis `json:"analysis,omitempty"`

	// progressDeadline is how long a rollout may make no progress before the condition Progressing
	// becomes False, 1m to 24h. The rollout still continues. Default 30m.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="progressDeadline must be a duration from 1m to 24h"
	ProgressDeadline *Duration `json:"progressDeadline,omitempty"`

	// revisionHistory is the number of old revisions to keep for rollbacks, 0 to 10. Default 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	RevisionHistory *int32 `json:"revisionHistory,omitempty"`
}

// RolloutStep is a step of a canary.
type RolloutStep struct {
	// percent of the workers that are of the new revision in this step.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`

	// pause before the next step, 0s to 168h. If it is omitted, the step lasts until the analysis
	// has minSamples.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('168h')",message="pause must be a duration from 0s to 168h"
	Pause *Duration `json:"pause,omitempty"`
}

// RolloutAnalysis compares the failures of a canary with those of the old revision.
type RolloutAnalysis struct {
	// maxFailureRatioIncreasePercent is by how many percentage points the failure ratio of the
	// canary may exceed that of the old revision, 0 to 100. Above it, the rollout stops and is
	// rolled back. Default 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxFailureRatioIncreasePercent *int32 `json:"maxFailureRatioIncreasePercent,omitempty"`

	// minSamples is the number of messages that the canary must handle before it is analyzed.
	// Default 20.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSamples int32 `json:"minSamples,omitempty"`
}

// Disruption limits evictions of workers.
type Disruption struct {
	// maxUnavailable of the PodDisruptionBudget: a number or a percentage. Default 1.
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
