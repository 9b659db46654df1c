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

// SequentialJob runs containers strictly one after another, each as a Kubernetes Job.
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

	// spec is the desired sequence.
	// +required
	Spec SequentialJobSpec `json:"spec"`

	// status is the observed state of the sequence.
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
	// containers are the steps, 1 to 110, run in this order: Kubernetes containers, each with an optional object `step`
	// with the options of its Job. Their names have at most 30 characters. Started steps are immutable until the run has
	// finished.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(c, self.exists_one(other, other.name == c.name))",message="step names must be unique"
	// +kubebuilder:validation:XValidation:rule="self.map(c, c.?step.?finally.orValue(false)).isSorted()",message="steps with finally must be the last in the list"
	// +kubebuilder:validation:XValidation:rule="self.filter(c, c.?step.?finally.orValue(false)).size() <= 10",message="at most 10 steps can have finally"
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || !self.all(c, c.?step.?finally.orValue(false))",message="at least one step must not have finally"
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=110
	Containers []Step `json:"containers"`

	// template is the Pod template of all steps. It can have one container, named `step`, with defaults for all
	// steps.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, c.name == 'step')",message="the template can have only one container, named step, with defaults for all steps; define sidecars as initContainers with restartPolicy: Always",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy in ['Never', 'OnFailure']",message="restartPolicy must be Never or OnFailure: a Job cannot run Pods with Always",fieldPath=".spec.restartPolicy"
	Template *PodTemplate `json:"template,omitempty"`

	// jobMetadata is metadata of the Jobs of all steps, for example the label of a Kueue queue. The annotations
	// yardmaster.dev/report-ignore and yardmaster.dev/report-running-too-long are allowed.
	// +optional
	JobMetadata *ObjectMetadata `json:"jobMetadata,omitempty"`

	// suspend keeps further steps from starting while it is true. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// suspendPolicy is what suspend does to a running step. AfterCurrent lets it finish; Immediate stops its Pods,
	// and runs the step again when the run is resumed. Defaults to AfterCurrent.
	// +optional
	// +kubebuilder:default=AfterCurrent
	SuspendPolicy SuspendPolicy `json:"suspendPolicy,omitempty"`

	// parameters are environment variables of every step, with literal values. A change applies to the next run.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Parameters []Parameter `json:"parameters,omitempty"`

	// activeDeadlineSeconds limits the run, in seconds from its start or, as in batch/v1, its resumption. Steps
	// with finally still run. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is the time in seconds after which a finished SequentialJob is deleted. Unset means
	// never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// workspace is a volume that is created for this SequentialJob and mounted in every step. It is immutable,
	// except onLost.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size == oldSelf.size) && self.accessMode == oldSelf.accessMode && self.mountPath == oldSelf.mountPath && self.retention == oldSelf.retention && has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="workspace is immutable, except onLost"
	Workspace *Workspace `json:"workspace,omitempty"`

	// rerun starts another run of a finished SequentialJob when its id changes.
	// +optional
	Rerun *SequenceRerun `json:"rerun,omitempty"`

	// onLostJob is what happens to a step whose Job, or its Pods, were deleted before the outcome was seen. Fail
	// fails the step; Rerun runs it again. Defaults to Fail.
	// +optional
	// +kubebuilder:default=Fail
	OnLostJob LostJobPolicy `json:"onLostJob,omitempty"`

	// jobHistoryLimit is the number of Jobs of ended steps that are kept, with their Pods and logs. Unset keeps all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	JobHistoryLimit *int32 `json:"jobHistoryLimit,omitempty"`

	// archive keeps the logs of the steps: when a run has ended, a Job copies them to a claim or a bucket.
	// +optional
	Archive *SequenceArchive `json:"archive,omitempty"`

	// managedBy names the controller that reconciles this object. Defaults to
	// yardmaster.dev/sequentialjob-controller, this operator. It is immutable.
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

	// securityProfile fills in fields of the Pods that are not set. Restricted: what the Pod Security Standard
	// "restricted" requires, and runAsUser, runAsGroup and fsGroup 65532. Unset fills in nothing.
	// +optional
	SecurityProfile SecurityProfile `json:"securityProfile,omitempty"`
}

// Parameter is an environment variable of every step.
type Parameter struct {
	// name of the variable: at most 63 letters, digits and _, not beginning with a digit, STEP_ or
	// SEQUENCE_.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('STEP_') && !self.startsWith('SEQUENCE_')",message="STEP_ and SEQUENCE_ are reserved for outputs and the outcome of the run"
	Name string `json:"name"`
	// value of the variable, at most 1024 characters. $(NAME) in it is not replaced. Defaults to "".
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// SecurityProfile is a set of defaults for the security of Pods.
// +kubebuilder:validation:Enum=Restricted
type SecurityProfile string

// SecurityRestricted fills in what the Pod Security Standard "restricted" requires.
const SecurityRestricted SecurityProfile = "Restricted"

// Step is one step of a sequence: a container, and the options of its Job.
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

	// step has the options of the step's Job.
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
// +kubebuilder:validation:XValidation:rule="!has(self.completionMode) || self.completionMode != 'Indexed' || has(self.completions)",message="completions is required when completionMode is Indexed",fieldPath=".completions"
// +kubebuilder:validation:XValidation:rule="!has(self.backoffLimitPerIndex) || (has(self.completionMode) && self.completionMode == 'Indexed')",message="backoffLimitPerIndex requires completionMode: Indexed",fieldPath=".backoffLimitPerIndex"
// +kubebuilder:validation:XValidation:rule="!has(self.maxFailedIndexes) || has(self.backoffLimitPerIndex)",message="maxFailedIndexes requires backoffLimitPerIndex",fieldPath=".maxFailedIndexes"
// +kubebuilder:validation:XValidation:rule="!has(self.successPolicy) || (has(self.completionMode) && self.completionMode == 'Indexed')",message="successPolicy requires completionMode: Indexed",fieldPath=".successPolicy"
type StepOptions struct {
	// backoffLimit is the number of failed Pods that are replaced before the step fails. Defaults to 0; with
	// backoffLimitPerIndex, to no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// activeDeadlineSeconds limits the step in seconds, including retries of its Pods. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// startDeadlineSeconds is the time in seconds in which a Pod must start a container after the Job has started.
	// Otherwise the step fails. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartDeadlineSeconds *int64 `json:"startDeadlineSeconds,omitempty"`

	// retry creates a new Job after the step's Job failed for a reason that may pass. limit is required, 1 to 100;
	// backoff defaults to 10s, maxBackoff to 10m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.limit) && self.limit >= 1 && self.limit <= 100",message="limit must be from 1 to 100",fieldPath=".limit"
	Retry *Retry `json:"retry,omitempty"`

	// backoffLimitPerIndex is the number of failed Pods of each index that are replaced. It requires completionMode:
	// Indexed and restartPolicy: Never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimitPerIndex *int32 `json:"backoffLimitPerIndex,omitempty"`

	// maxFailedIndexes is the number of failed indexes after which the step stops all others and fails. It requires
	// backoffLimitPerIndex. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxFailedIndexes *int32 `json:"maxFailedIndexes,omitempty"`

	// successPolicy is that of the Job. It requires completionMode: Indexed. Unset means that all indexes have to
	// succeed.
	// +optional
	SuccessPolicy *batchv1.SuccessPolicy `json:"successPolicy,omitempty"`

	// requireApproval makes each run wait for an approval before the step: `kubectl yardmaster seq approve`.
	// Defaults to false.
	// +optional
	RequireApproval bool `json:"requireApproval,omitempty"`

	// when is a CEL expression that is evaluated when the step is due. If it is false, the step is skipped. It can
	// read steps, parameters and sequence. Unset means that the step runs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`

	// podTemplate is a strategic merge patch of spec.template for this step. It cannot have containers: the fields
	// of the step itself are those of its container.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate *runtime.RawExtension `json:"podTemplate,omitempty"`

	// podFailurePolicy is that of the Job. It requires restartPolicy: Never. Defaults to a policy that ignores
	// failures caused by a disruption.
	// +optional
	PodFailurePolicy *batchv1.PodFailurePolicy `json:"podFailurePolicy,omitempty"`

	// finally steps run after all others, whatever their outcome. At most 10 steps, the last of the list, can be
	// finally. Defaults to false.
	// +optional
	Finally bool `json:"finally,omitempty"`

	// onFailure is what the step's failure does to the run. Stop skips the later steps without finally and fails the
	// run; Continue starts the next step. Defaults to Stop.
	// +optional
	OnFailure FailureAction `json:"onFailure,omitempty"`

	// parallelism is the number of Pods that run at the same time. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Parallelism *int32 `json:"parallelism,omitempty"`

	// completions is the number of Pods that must succeed. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Completions *int32 `json:"completions,omitempty"`

	// completionMode is that of the Job. Defaults to NonIndexed.
	// +optional
	// +kubebuilder:validation:Enum=NonIndexed;Indexed
	CompletionMode *batchv1.CompletionMode `json:"completionMode,omitempty"`

	// outputs records the step's termination message, UTF-8 text of less than 4096 bytes, and passes it to later
	// steps as STEP_<NAME>_OUTPUT. Defaults to false.
	// +optional
	Outputs bool `json:"outputs,omitempty"`
}

// Workspace is a PersistentVolumeClaim that is created for one SequentialJob.
//
// +kubebuilder:validation:XValidation:rule="has(self.size)",message="size is required",fieldPath=".size",reason=FieldValueRequired
type Workspace struct {
	WorkspaceClaim `json:",inline"`

	// accessMode of the claim. Defaults to ReadWriteOnce.
	// +optional
	// +kubebuilder:default=ReadWriteOnce
	// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany;ReadWriteOncePod
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`

	// mountPath is the path of the volume in every step. Defaults to /workspace.
	// +optional
	// +kubebuilder:default=/workspace
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^:]+$`
	MountPath string `json:"mountPath,omitempty"`
}

// SequenceArchive is where the logs of steps are kept.
type SequenceArchive struct {
	Archive `json:",inline"`

	// serviceAccountName of the Job that reads the logs. It needs get and list for pods, and get for pods/log.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccountName string `json:"serviceAccountName"`
}

// SequenceRerun requests another run of a SequentialJob.
type SequenceRerun struct {
	Rerun `json:",inline"`

	// from is the first step of the rerun: Failed for the first that failed, Start, or the name of a step
	// without finally. Steps before it keep their outcome. Defaults to Failed.
	// +optional
	// +kubebuilder:default=Failed
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	From string `json:"from,omitempty"`

	// parameters replace values of spec.parameters in this rerun.
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

// LostWorkspacePolicy is what happens to a run whose workspace was deleted or replaced.
// +kubebuilder:validation:Enum=Fail;Recreate
type LostWorkspacePolicy string

// The lost-workspace policies.
const (
	LostWorkspaceFail     LostWorkspacePolicy = "Fail"
	LostWorkspaceRecreate LostWorkspacePolicy = "Recreate"
)

// WorkspaceRetention is what happens to a workspace when its SequentialJob is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type WorkspaceRetention string

// The workspace retentions.
const (
	WorkspaceDelete WorkspaceRetention = "Delete"
	WorkspaceRetain WorkspaceRetention = "Retain"
)
