package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SequentialJobManager is the value of spec.managedBy that selects this operator, as does
// leaving the field unset.
const SequentialJobManager = Prefix + "sequentialjob-controller"

// SequentialJobFinalizer is set only while a step may be running, so that deleting the
// SequentialJob stops the running step before the object is removed.
const SequentialJobFinalizer = Prefix + "terminate-step"

// SequentialJob runs containers one after another, each as a Job.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sj;seqjob,categories=all;yardmaster
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.progress.currentStep`
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.state.succeeded`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Run",type=integer,priority=1,JSONPath=`.status.run`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
type SequentialJob struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec of the sequence.
	// +required
	Spec SequentialJobSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	// +structType=atomic
	Status SequentialJobStatus `json:"status,omitempty"`
}

// SequentialJobList is a list of SequentialJobs.
//
// +kubebuilder:object:root=true
type SequentialJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SequentialJob `json:"items"`
}

// SequentialJobSpec is the desired sequence.
//
// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace)",message="workspace is immutable: it cannot be added or removed",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="has(self.managedBy) == has(oldSelf.managedBy)",message="managedBy is immutable: it cannot be added or removed",fieldPath=".managedBy"
// +kubebuilder:validation:XValidation:rule="!has(self.rerun) || !has(self.rerun.from) || self.rerun.from in ['Failed', 'Start'] || self.containers.exists(c, c.name == self.rerun.from && !c.?step.?finally.orValue(false))",message="rerun.from must be Failed, Start or the name of a step without finally",fieldPath=".rerun.from"
// +kubebuilder:validation:XValidation:rule="!has(self.rerun) || !has(self.rerun.parameters) || self.rerun.parameters.all(r, has(self.parameters) && self.parameters.exists(p, p.name == r.name))",message="rerun.parameters can only have names of spec.parameters",fieldPath=".rerun.parameters"
type SequentialJobSpec struct {
	// containers are the steps in order, with names of at most 30 characters. Started steps are immutable.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(c, self.exists_one(other, other.name == c.name))",message="step names must be unique"
	// +kubebuilder:validation:XValidation:rule="self.map(c, c.?step.?finally.orValue(false)).isSorted()",message="steps with finally must be the last in the list"
	// +kubebuilder:validation:XValidation:rule="self.filter(c, c.?step.?finally.orValue(false)).size() <= 10",message="at most 10 steps can have finally"
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || !self.all(c, c.?step.?finally.orValue(false))",message="at least one step must not have finally"
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=110
	Containers []Step `json:"containers"`

	// template of the Pods. Its container step has defaults for all steps.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, c.name == 'step')",message="the template can have only one container, named step, with defaults for all steps; define sidecars as initContainers with restartPolicy: Always",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy in ['Never', 'OnFailure']",message="restartPolicy must be Never or OnFailure: a Job cannot run Pods with Always",fieldPath=".spec.restartPolicy"
	// +kubebuilder:validation:XValidation:rule="self.?spec.?containers.orValue([]).size() <= 64 && self.?spec.?evictionResponders.orValue([]).size() <= 256 && self.?spec.?hostAliases.orValue([]).size() <= 256 && self.?spec.?imagePullSecrets.orValue([]).size() <= 256 && self.?spec.?initContainers.orValue([]).size() <= 64 && self.?spec.?readinessGates.orValue([]).size() <= 256 && self.?spec.?resourceClaims.orValue([]).size() <= 256 && self.?spec.?schedulingGates.orValue([]).size() <= 256 && self.?spec.?tolerations.orValue([]).size() <= 256 && self.?spec.?topologySpreadConstraints.orValue([]).size() <= 256 && self.?spec.?volumes.orValue([]).size() <= 256",message="a template may have at most 64 containers of each type, and 256 of each other list",fieldPath=".spec"
	Template *PodTemplate `json:"template,omitempty"`

	// jobMetadata of the Jobs, such as the label of a queue.
	// +optional
	JobMetadata *ObjectMetadata `json:"jobMetadata,omitempty"`

	// suspend prevents further steps. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// suspendPolicy for a running step. AfterCurrent lets it finish, Immediate repeats it later. Defaults to
	// AfterCurrent.
	// +optional
	// +kubebuilder:default=AfterCurrent
	SuspendPolicy SuspendPolicy `json:"suspendPolicy,omitempty"`

	// results of a completed run: CEL expressions.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Results []Parameter `json:"results,omitempty"`

	// parameters are environment variables of every step.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Parameters []Parameter `json:"parameters,omitempty"`

	// activeDeadlineSeconds of the run without finally steps. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished until the object is deleted. Unset means never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// workspace is a volume in every step. Immutable, except onLost.
	// +optional
	Workspace *Workspace `json:"workspace,omitempty"`

	// rerun requests another run.
	// +optional
	Rerun *SequenceRerun `json:"rerun,omitempty"`

	// onLostJob is Fail or Rerun, for a step whose Job or Pods were deleted before its outcome was recorded. Defaults
	// to Fail.
	// +optional
	// +kubebuilder:default=Fail
	OnLostJob LostJobPolicy `json:"onLostJob,omitempty"`

	// jobHistoryLimit is how many ended Jobs are kept. Unset means all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	JobHistoryLimit *int32 `json:"jobHistoryLimit,omitempty"`

	// archive for the logs of ended runs.
	// +optional
	Archive *SequenceArchive `json:"archive,omitempty"`

	// managedBy is the controller. Immutable. Defaults to this operator.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="managedBy is immutable"
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="managedBy must be a domain-prefixed path such as acme.io/controller"
	ManagedBy *string `json:"managedBy,omitempty"`
}

// PodTemplate is a Pod template with defaults.
type PodTemplate struct {
	corev1.PodTemplateSpec `json:",inline"`

	// securityProfile Restricted fills in the Pod Security Standard restricted, and user and groups 65532. Unset means
	// nothing.
	// +optional
	SecurityProfile SecurityProfile `json:"securityProfile,omitempty"`

	// endWithStep ends the Pod of a step with one Pod when the step's container has ended, although other containers
	// run. Defaults to false.
	// +optional
	EndWithStep bool `json:"endWithStep,omitempty"`
}

// Parameter is a variable.
type Parameter struct {
	// name without the prefix STEP_ or SEQUENCE_.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('STEP_') && !self.startsWith('SEQUENCE_')",message="STEP_ and SEQUENCE_ are reserved for outputs and the outcome of the run"
	Name string `json:"name"`
	// value, taken literally; of a result, an expression. Defaults to empty.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// SecurityProfile is a set of defaults for the security of Pods.
// +kubebuilder:validation:Enum=Restricted
type SecurityProfile string

// SecurityRestricted fills in what the Pod Security Standard "restricted" requires.
const SecurityRestricted SecurityProfile = "Restricted"

// Step is a container and its Job.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restartPolicy) || self.restartPolicy != 'Always'",message="a step's restartPolicy cannot be Always: its Job would never complete; define sidecars in template.spec.initContainers",fieldPath=".restartPolicy"
type Step struct {
	// name of the step and of its container, unique in the SequentialJob: a DNS label of at most 30 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	corev1.Container `json:",inline"`

	// step has options of the Job.
	// +optional
	Step *StepOptions `json:"step,omitempty"`
}

// AsContainer returns the step's container with the step's name. Decoding leaves Container.Name
// empty, because Step.Name has the same JSON key.
func (s *Step) AsContainer() *corev1.Container {
	c := s.Container.DeepCopy()
	c.Name = s.Name
	return c
}

// Options returns the step's options, never nil.
func (s *Step) Options() *StepOptions {
	if s.Step == nil {
		return &StepOptions{}
	}
	return s.Step
}

// StepOptions are the options of a step's Job.
//
// +kubebuilder:validation:XValidation:rule="!has(self.outputs) || !self.outputs || ((!has(self.completions) || self.completions == 1) && (!has(self.parallelism) || self.parallelism == 1))",message="outputs requires a step that runs one Pod: completions and parallelism of 1",fieldPath=".outputs"
// +kubebuilder:validation:XValidation:rule="!has(self.outputFormat) || (has(self.outputs) && self.outputs)",message="outputFormat requires outputs: true",fieldPath=".outputFormat"
// +kubebuilder:validation:XValidation:rule="!has(self.completionMode) || self.completionMode != 'Indexed' || has(self.completions)",message="completions is required when completionMode is Indexed",fieldPath=".completions"
// +kubebuilder:validation:XValidation:rule="!has(self.backoffLimitPerIndex) || (has(self.completionMode) && self.completionMode == 'Indexed')",message="backoffLimitPerIndex requires completionMode: Indexed",fieldPath=".backoffLimitPerIndex"
// +kubebuilder:validation:XValidation:rule="!has(self.maxFailedIndexes) || has(self.backoffLimitPerIndex)",message="maxFailedIndexes requires backoffLimitPerIndex",fieldPath=".maxFailedIndexes"
// +kubebuilder:validation:XValidation:rule="!has(self.successPolicy) || (has(self.completionMode) && self.completionMode == 'Indexed')",message="successPolicy requires completionMode: Indexed",fieldPath=".successPolicy"
type StepOptions struct {
	// backoffLimit is how many failed Pods are replaced. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// activeDeadlineSeconds of each Job of the step. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// startDeadlineSeconds until the step's container must have started. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	StartDeadlineSeconds *int64 `json:"startDeadlineSeconds,omitempty"`

	// retry in a new Job. limit is required, 1 to 100. backoff defaults to 10s, maxBackoff to 10m, maxDuration to no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.limit) && self.limit >= 1 && self.limit <= 100",message="limit must be from 1 to 100",fieldPath=".limit"
	Retry *StepRetry `json:"retry,omitempty"`

	// backoffLimitPerIndex is backoffLimit for each index.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimitPerIndex *int32 `json:"backoffLimitPerIndex,omitempty"`

	// maxFailedIndexes until the step fails. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxFailedIndexes *int32 `json:"maxFailedIndexes,omitempty"`

	// successPolicy, in completionMode Indexed. Unset means all indexes.
	// +optional
	SuccessPolicy *batchv1.SuccessPolicy `json:"successPolicy,omitempty"`

	// requireApproval waits for `kubectl yardmaster seq approve`. Defaults to false.
	// +optional
	RequireApproval bool `json:"requireApproval,omitempty"`

	// when is a CEL expression with steps, outputs, parameters and sequence. False skips the step.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`

	// podTemplate is a strategic merge patch of template.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate *runtime.RawExtension `json:"podTemplate,omitempty"`

	// podFailurePolicy of the Job. Defaults to ignoring disruptions.
	// +optional
	PodFailurePolicy *batchv1.PodFailurePolicy `json:"podFailurePolicy,omitempty"`

	// finally runs the step last, whatever the outcome. Defaults to false.
	// +optional
	Finally bool `json:"finally,omitempty"`

	// onFailure is Stop, which fails the run, or Continue. Defaults to Stop.
	// +optional
	OnFailure FailureAction `json:"onFailure,omitempty"`

	// parallelism of the Pods. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Parallelism *int32 `json:"parallelism,omitempty"`

	// completions is how many Pods must succeed. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Completions *int32 `json:"completions,omitempty"`

	// completionMode of the Job. Defaults to NonIndexed.
	// +optional
	// +kubebuilder:validation:Enum=NonIndexed;Indexed
	CompletionMode *batchv1.CompletionMode `json:"completionMode,omitempty"`

	// outputs passes the termination message to later steps as STEP_<NAME>_OUTPUT. Defaults to false.
	// +optional
	Outputs bool `json:"outputs,omitempty"`

	// outputFormat is Text or JSON, of which later steps also get the fields. Defaults to Text.
	// +optional
	OutputFormat OutputFormat `json:"outputFormat,omitempty"`
}

// StepRetry is when a step that failed is tried again.
type StepRetry struct {
	Retry `json:",inline"`

	// maxDuration from the start of the first attempt that failed to the time at which the last is due, 0s to 720h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="maxDuration must be a duration from 0s to 720h"
	MaxDuration *Duration `json:"maxDuration,omitempty"`
}

// OutputFormat is how the output of a step is read.
// +kubebuilder:validation:Enum=Text;JSON
type OutputFormat string

// The formats of outputs.
const (
	OutputText OutputFormat = "Text"
	OutputJSON OutputFormat = "JSON"
)

// Workspace is a PersistentVolumeClaim that is created for one SequentialJob.
//
// +kubebuilder:validation:XValidation:rule="has(self.size)",message="size is required",fieldPath=".size",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName) && self.accessMode == oldSelf.accessMode && self.mountPath == oldSelf.mountPath",message="workspace is immutable, except onLost"
type Workspace struct {
	WorkspaceClaim  `json:",inline"`
	WorkspaceVolume `json:",inline"`

	// mountPath in every step. Defaults to /workspace.
	// +optional
	// +kubebuilder:default=/workspace
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^:]+$`
	MountPath string `json:"mountPath,omitempty"`
}

// SequenceArchive is where the logs of steps are kept.
type SequenceArchive struct {
	Archive `json:",inline"`

	// serviceAccountName that can get and list pods, and get pods/log.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccountName string `json:"serviceAccountName"`
}

// SequenceRerun requests another run of a SequentialJob.
type SequenceRerun struct {
	Rerun `json:",inline"`

	// from is Failed (the first step that failed or was not reached), Start, or a step. Earlier steps keep their
	// outcome. Defaults to Failed.
	// +optional
	// +kubebuilder:default=Failed
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	From string `json:"from,omitempty"`

	// parameters that replace values of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Parameters []Parameter `json:"parameters,omitempty"`
}

// The values of SequenceRerun.From that are not step names.
const (
	RerunFromFailed = "Failed"
	RerunFromStart  = "Start"
)

// SuspendPolicy is what suspending does to a running step.
// +kubebuilder:validation:Enum=AfterCurrent;Immediate
type SuspendPolicy string

// The suspend policies.
const (
	SuspendAfterCurrent SuspendPolicy = "AfterCurrent"
	SuspendImmediate    SuspendPolicy = "Immediate"
)

// FailureAction is what a step's failure does to the run.
// +kubebuilder:validation:Enum=Stop;Continue
type FailureAction string

// The failure actions.
const (
	OnFailureStop     FailureAction = "Stop"
	OnFailureContinue FailureAction = "Continue"
)

// LostJobPolicy is what happens to a step whose Job was deleted before it ended.
// +kubebuilder:validation:Enum=Fail;Rerun
type LostJobPolicy string

// The lost-Job policies.
const (
	LostJobFail  LostJobPolicy = "Fail"
	LostJobRerun LostJobPolicy = "Rerun"
)
