package sequentialjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const workspaceVolume = "workspace"

// Labels that Kubernetes recommends. Users may set them.
const (
	labelAppName     = "app.kubernetes.io/name"
	labelAppInstance = "app.kubernetes.io/instance"
	labelAppPartOf   = "app.kubernetes.io/part-of"
)

func stepJob(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, run, attempt int32) *batchv1.Job {
	options := step.Options()
	template := podTemplate(sj, step)
	container := &template.Spec.Containers[0]
	container.Env = withAttempt(container.Env, run, attempt)
	labels, annotations := map[string]string{}, map[string]string{}
	if metadata := sj.Spec.JobMetadata; metadata != nil {
		maps.Copy(labels, metadata.Labels)
		maps.Copy(annotations, metadata.Annotations)
	}
	labels = addStepLabels(labels, sj, step.Name)
	decision.SetScheduleLabel(labels, sj)
	labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByValue // the operator may manage only Jobs with this label
	annotations[v1alpha1.AnnotationRun] = strconv.Itoa(int(run))
	annotations[v1alpha1.AnnotationSpecHash] = stepHash(step)
	if step.Step != nil {
		withoutTemplate := step.Step.DeepCopy()
		withoutTemplate.PodTemplate = nil                          // the Job's template has it
		if raw, err := json.Marshal(withoutTemplate); err == nil { // API types always marshal
			annotations[v1alpha1.AnnotationStepOptions] = string(raw)
		}
	}
	backoffLimit := options.BackoffLimit
	if backoffLimit == nil && options.BackoffLimitPerIndex == nil {
		backoffLimit = new(int32(0)) // by default, failed Pods are not replaced
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            jobName(sj, run, step.Name, attempt),
			Namespace:       sj.Namespace,
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: decision.ControllerReferences("SequentialJob", sj),
		},
		Spec: batchv1.JobSpec{
			Parallelism:           options.Parallelism,
			Completions:           options.Completions,
			CompletionMode:        options.CompletionMode,
			BackoffLimit:          backoffLimit,
			BackoffLimitPerIndex:  options.BackoffLimitPerIndex,
			MaxFailedIndexes:      options.MaxFailedIndexes,
			SuccessPolicy:         options.SuccessPolicy.DeepCopy(),
			ActiveDeadlineSeconds: options.ActiveDeadlineSeconds,
			PodFailurePolicy:      podFailurePolicy(options, template.Spec.RestartPolicy),
			// A failed Pod is replaced only after it has stopped, so that a step never runs twice at a time.
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             template,
		},
	}
	annotations[v1alpha1.AnnotationContentHash] = decision.ContentHash(job, contentHashLength)
	annotations[v1alpha1.AnnotationGeneration] = strconv.FormatInt(sj.Generation, 10)
	return job
}

// podFailurePolicy returns the policy of the step's Job. By default, evicted or preempted Pods are replaced: their
// containers did not fail. Jobs have no such policy for Pods that restart their containers.
func podFailurePolicy(options *v1alpha1.StepOptions, restartPolicy corev1.RestartPolicy) *batchv1.PodFailurePolicy {
	if options.PodFailurePolicy != nil || restartPolicy != corev1.RestartPolicyNever {
		return options.PodFailurePolicy.DeepCopy()
	}
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action:          batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}}
}

func podTemplate(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) corev1.PodTemplateSpec {
	template, err := overlaidTemplate(sj, step)
	if err != nil {
		// Validate refuses such an overlay, and createJob fails its step.
		template, _ = overlaidTemplate(sj, &v1alpha1.Step{})
	}
	if template.Spec.RestartPolicy == "" {
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	template.Labels = addStepLabels(template.Labels, sj, step.Name)

	container := mergeContainer(containerDefaults(sj), step.AsContainer())
	container.Name = step.Name
	container.Env = slices.Concat(runEnvVars(sj, step.Name), outputEnvVars(sj, step.Name), container.Env)
	if workspace := sj.Spec.Workspace; workspace != nil {
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: workspaceVolume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: WorkspaceName(sj)},
		}})
		mount := corev1.VolumeMount{Name: workspaceVolume, MountPath: workspace.MountPath}
		container.VolumeMounts = mergeByKey([]corev1.VolumeMount{mount}, container.VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath })
	}
	template.Spec.Containers = []corev1.Container{container}
	if sj.Spec.Template != nil && sj.Spec.Template.SecurityProfile == v1alpha1.SecurityRestricted {
		restrictPod(&template.Spec)
	}
	return template
}

func jobOptions(job *batchv1.Job) *v1alpha1.StepOptions {
	options := &v1alpha1.StepOptions{}
	if raw := job.Annotations[v1alpha1.AnnotationStepOptions]; raw != "" {
		if err := json.Unmarshal([]byte(raw), options); err != nil {
			return &v1alpha1.StepOptions{} // the annotation was edited; the defaults are the strictest options
		}
	}
	return options
}

// addStepLabels adds the operator's labels to the labels of a step's Job or Pod. It replaces only labels with the
// operator's prefix.
func addStepLabels(labels map[string]string, sj *v1alpha1.SequentialJob, step string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	for key, value := range childLabels(sj) {
		if _, isSet := labels[key]; !isSet || strings.HasPrefix(key, v1alpha1.Prefix) {
			labels[key] = value
		}
	}
	labels[v1alpha1.LabelStep] = step
	return labels
}

// childLabels returns the labels that identify the SequentialJob of an object, and those of the SequentialJob that Kubernetes recommends.
// The objects have no others, because each label weighs on all requests about a Job and its Pods (docs/decisions/0103-what-a-step-costs.md).
func childLabels(sj *v1alpha1.SequentialJob) map[string]string {
	const maxLabelValue = 63
	name := sj.Name
	if len(name) > maxLabelValue {
		name = strings.TrimRight(name[:maxLabelValue], "-.")
	}
	labels := map[string]string{
		v1alpha1.LabelManagedBy:        v1alpha1.ManagedByValue,
		v1alpha1.LabelSequentialJob:    name,
		v1alpha1.LabelSequentialJobUID: string(sj.UID),
	}
	for _, key := range []string{labelAppName, labelAppInstance, labelAppPartOf} {
		if value := sj.Labels[key]; value != "" {
			labels[key] = value
		}
	}
	return labels
}

// The environment variables of all steps that name the attempt, for keys of requests that must have one effect.
const (
	envUID     = "SEQUENCE_UID"
	envRun     = "SEQUENCE_RUN"
	envAttempt = "STEP_ATTEMPT"
)

// The environment variables of steps with finally that report how the steps before them ended.
const (
	envStatus        = "SEQUENCE_STATUS"
	envFailedStep    = "SEQUENCE_FAILED_STEP"
	envFailedReason  = "SEQUENCE_FAILED_REASON"
	envFailedMessage = "SEQUENCE_FAILED_MESSAGE"
)

// resultBeforeFinally returns how the steps without finally ended, and the message of their failure.
func resultBeforeFinally(sj *v1alpha1.SequentialJob) (result RunResult, failure string) {
	var steps []v1alpha1.StepStatus
	for _, step := range sj.Status.Steps {
		if !IsFinally(&sj.Spec, step.Name) {
			steps = append(steps, step)
		}
	}
	if failed := failedStep(steps); failed != nil {
		return RunResult{string(v1alpha1.PhaseFailed), failed.Name, failed.Reason}, failed.Message
	}
	result.Status = string(v1alpha1.PhaseCompleted)
	for i := range steps {
		switch step := &steps[i]; {
		case step.Phase == v1alpha1.StepSkipped && step.Reason == v1alpha1.ReasonDeadlineExceeded:
			return RunResult{Status: string(v1alpha1.PhaseFailed), FailedReason: step.Reason}, deadlineMessage
		case canStart(step.Phase) || isActive(step.Phase):
			result.Status = string(v1alpha1.PhaseRunning)
		}
	}
	return result, ""
}

// withAttempt adds the environment variables that name an attempt, except those that the step sets itself. They come last, so that
// messages of the API server about the step's own variables have the right index. The UID is a reference, so that equal
// SequentialJobs have equal Pod templates, which need one dry run.
func withAttempt(own []corev1.EnvVar, run, attempt int32) []corev1.EnvVar {
	all := slices.Clone(own)
	for _, variable := range []corev1.EnvVar{
		{Name: envUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: "metadata.labels['" + v1alpha1.LabelSequentialJobUID + "']",
		}}},
		{Name: envRun, Value: strconv.Itoa(int(run))},
		{Name: envAttempt, Value: strconv.Itoa(int(attempt))},
	} {
		if !slices.ContainsFunc(own, func(set corev1.EnvVar) bool { return set.Name == variable.Name }) {
			all = append(all, variable)
		}
	}
	return all
}

// runEnvVars returns the environment variables with the parameters of the run and, for a step with finally, how the
// steps before those ended. They come first in a step's environment, so that its variables can refer to them.
func runEnvVars(sj *v1alpha1.SequentialJob, step string) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for _, parameter := range sj.Status.Parameters {
		variables = append(variables, literalEnvVar(parameter.Name, parameter.Value))
	}
	if !IsFinally(&sj.Spec, step) {
		return variables
	}
	result, failure := resultBeforeFinally(sj)
	return append(variables,
		literalEnvVar(envStatus, result.Status),
		literalEnvVar(envFailedStep, result.FailedStep),
		literalEnvVar(envFailedReason, result.FailedReason),
		literalEnvVar(envFailedMessage, failure),
	)
}

func literalEnvVar(name, value string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, Value: decision.LiteralValue(value)}
}

// runParameters returns the parameters of the spec, with the values that a rerun replaces.
func runParameters(spec *v1alpha1.SequentialJobSpec, rerun *v1alpha1.SequenceRerun) []v1alpha1.Parameter {
	parameters := slices.Clone(spec.Parameters)
	if rerun == nil {
		return parameters
	}
	for i := range parameters {
		for _, replaced := range rerun.Parameters {
			if replaced.Name == parameters[i].Name {
				parameters[i].Value = replaced.Value
			}
		}
	}
	return parameters
}

const (
	// maxNameLength leaves room for the "-<index>" that Indexed Jobs append in the host names of Pods, which are DNS
	// labels of at most 63 characters.
	maxNameLength     = 52
	nameHashLength    = 10
	contentHashLength = 16
)

// jobName returns the name of the Job for an attempt at a step. The name is deterministic, so that a reconciliation
// with a stale cache gets AlreadyExists instead of creating a second Job.
func jobName(sj *v1alpha1.SequentialJob, run int32, step string, attempt int32) string {
	return childName(sj.Name, step, fmt.Sprintf("%s/%d/%s/%d", sj.UID, run, step, attempt))
}

// WorkspaceName returns the name of the SequentialJob's PersistentVolumeClaim.
func WorkspaceName(sj *v1alpha1.SequentialJob) string {
	return childName(sj.Name, "workspace", string(sj.UID)+"/workspace")
}

// OutputsName returns the name of the ConfigMap that holds the outputs of its steps.
func OutputsName(sj *v1alpha1.SequentialJob) string {
	return childName(sj.Name, "outputs", string(sj.UID)+"/outputs")
}

// childName returns "<owner>-<part>-<hash of identity>", a DNS label. Only the owner's name is
// truncated to fit; the hash distinguishes names that are truncated to the same text.
func childName(owner, part, identity string) string {
	suffix := "-" + part + "-" + decision.HexDigest([]byte(identity), nameHashLength)
	prefix := strings.ReplaceAll(owner, ".", "-")
	if room := maxNameLength - len(suffix); len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-")
	}
	return prefix + suffix
}

// specHashVersion is the prefix of each hash of a step. It must change whenever the same step would get another hash:
// hashes of different versions are not compared, so that a new release of the operator never considers a started step
// changed. TestHashOfAStepIsStable fails if it has to change.
const specHashVersion = "v2:"

// stepHash returns a hash of a step in the spec, without defaults and empty fields, so that equivalent steps have the
// same hash.
func stepHash(step *v1alpha1.Step) string {
	canonical := step.DeepCopy()
	if options := canonical.Step; options != nil {
		if options.OnFailure == v1alpha1.OnFailureStop {
			options.OnFailure = ""
		}
		if options.OutputFormat == v1alpha1.OutputText {
			options.OutputFormat = ""
		}
		if options.BackoffLimit != nil && *options.BackoffLimit == 0 {
			options.BackoffLimit = nil
		}
	}
	// Whether Go writes empty fields depends on declarations, which change between releases of Kubernetes.
	var fields any
	if raw, err := json.Marshal(canonical); err != nil || json.Unmarshal(raw, &fields) != nil { // API types always marshal
		fields = canonical
	}
	pruned := rewriteJSON(fields, func(value any) any {
		if object, isObject := value.(map[string]any); isObject {
			maps.DeleteFunc(object, func(_ string, field any) bool { return isEmpty(field) })
		}
		return value
	})
	return specHashVersion + decision.ContentHash(pruned, contentHashLength)
}

// hasStepChanged reports whether a change makes a step differ from the spec that it was started with. before is the step before the
// change; nil if unknown, which counts as unchanged if the hash of the started step has another version.
func hasStepChanged(record *v1alpha1.StepStatus, before, after *v1alpha1.Step) bool {
	hash := stepHash(after)
	isChange := before != nil && stepHash(before) != hash
	if !strings.HasPrefix(record.SpecHash, specHashVersion) {
		return isChange
	}
	return hash != record.SpecHash && (isChange || before == nil)
}

// rewriteJSON replaces each value inside a value in JSON, innermost first, and then the value itself.
func rewriteJSON(value any, rewrite func(any) any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = rewriteJSON(value[key], rewrite)
		}
	case []any:
		for i := range value {
			value[i] = rewriteJSON(value[i], rewrite)
		}
	}
	return rewrite(value)
}

// isEmpty reports whether a value in JSON is null, "", {} or [].
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// waitingJobs returns the next Jobs of the steps that wait to start, or that may be corrected.
func waitingJobs(sj *v1alpha1.SequentialJob) []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		if stepSpec := findStepSpec(&sj.Spec, step.Name); stepSpec != nil && (canStart(step.Phase) || isCorrectable(step)) {
			jobs = append(jobs, stepJob(sj, stepSpec, sj.Status.Run, step.Attempt+1))
		}
	}
	return jobs
}

// FirstJobs returns the Jobs that a new SequentialJob creates, unless a step fails.
func FirstJobs(sj *v1alpha1.SequentialJob) []*batchv1.Job {
	first := sj.DeepCopy()
	first.Status = v1alpha1.SequentialJobStatus{
		RunStatus: v1alpha1.RunStatus{Run: 1}, Steps: mergeSteps(&first.Spec, nil), Parameters: runParameters(&first.Spec, nil),
	}
	return waitingJobs(first)
}

// PodOf returns the Pod that the Job controller would create for a Job that the API server returned, with the label and
// the owner without which the operator may not create it: see the policy yardmaster-own-objects.
func PodOf(job *batchv1.Job) *corev1.Pod {
	template := job.Spec.Template.DeepCopy()
	metav1.SetMetaDataLabel(&template.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedByValue)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: job.Name + "-", Namespace: job.Namespace,
			Labels: template.Labels, Annotations: template.Annotations, OwnerReferences: job.OwnerReferences,
		},
		Spec: template.Spec,
	}
}

// IsHeldByQueue reports whether a Job was suspended when it was created, as queues such as Kueue do, or a queue manages
// it.
func IsHeldByQueue(job *batchv1.Job) bool { return isSuspended(job) || isQueueManaged(job) }

// Fingerprint identifies a Job without its name and owner: if the API server accepts a Job, it accepts others with the
// same fingerprint. Content and Metadata are separate, because the metadata of all steps of a SequentialJob is usually
// the same.
type Fingerprint struct {
	// Content of the Job and of its Pods.
	Content string
	// Metadata of the Job and of its Pods: labels and annotations.
	Metadata string
}

// FingerprintOf returns the fingerprint of the Job of a step.
func FingerprintOf(job *batchv1.Job) Fingerprint {
	spec := job.Spec.DeepCopy()
	spec.Template.ObjectMeta = metav1.ObjectMeta{}
	metadata := []any{job.Spec.Template.Finalizers}
	for _, object := range []*metav1.ObjectMeta{&job.ObjectMeta, &job.Spec.Template.ObjectMeta} {
		labels, annotations := maps.Clone(object.Labels), maps.Clone(object.Annotations)
		// The operator derives these labels from the names of the SequentialJob, its Schedule and the step.
		for _, key := range []string{v1alpha1.LabelSequentialJob, v1alpha1.LabelSequentialJobUID, v1alpha1.LabelSchedule, v1alpha1.LabelStep} {
			delete(labels, key)
		}
		for _, key := range []string{
			v1alpha1.AnnotationRun, v1alpha1.AnnotationGeneration, v1alpha1.AnnotationSpecHash, v1alpha1.AnnotationContentHash, v1alpha1.AnnotationStepOptions,
		} {
			delete(annotations, key)
		}
		metadata = append(metadata, labels, annotations)
	}
	content := []any{spec, job.Annotations[v1alpha1.AnnotationStepOptions]}
	return Fingerprint{
		Content:  "content/" + job.Namespace + "/" + decision.ContentHash(content, contentHashLength),
		Metadata: "metadata/" + job.Namespace + "/" + decision.ContentHash(metadata, contentHashLength),
	}
}
