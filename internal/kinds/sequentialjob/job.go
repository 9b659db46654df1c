package sequentialjob

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const workspaceVolume = "workspace"

// Labels that Kubernetes recommends. Users may set them.
const (
	labelAppName      = "app.kubernetes.io/name"
	labelAppInstance  = "app.kubernetes.io/instance"
	labelAppComponent = "app.kubernetes.io/component"
	labelAppPartOf    = "app.kubernetes.io/part-of"
)

func stepJob(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, run, attempt int32) *batchv1.Job {
	options := step.Options()
	template := podTemplate(sj, step)
	container := &template.Spec.Containers[0]
	container.Env = withAttempt(container.Env, run, attempt)
	backoffLimit := options.BackoffLimit
	if backoffLimit == nil && options.BackoffLimitPerIndex == nil {
		backoffLimit = new(int32(0)) // by default, failed Pods are not replaced
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            jobName(sj, run, step.Name, attempt),
			Namespace:       sj.Namespace,
			Labels:          jobLabels(sj, step.Name),
			Annotations:     jobAnnotations(sj, step, run),
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
	job.Annotations[v1alpha1.AnnotationContentHash] = contentHash(job)
	job.Annotations[v1alpha1.AnnotationGeneration] = strconv.FormatInt(sj.Generation, 10)
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
		mountWorkspace(&template.Spec, &container, WorkspaceName(sj), workspace.MountPath)
	}
	template.Spec.Containers = []corev1.Container{container}
	if sj.Spec.Template != nil && sj.Spec.Template.SecurityProfile == v1alpha1.SecurityRestricted {
		restrictPod(&template.Spec)
	}
	return template
}

func mountWorkspace(pod *corev1.PodSpec, container *corev1.Container, claim, path string) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{
		Name: workspaceVolume,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		},
	})
	container.VolumeMounts = mergeByKey(
		[]corev1.VolumeMount{{Name: workspaceVolume, MountPath: path}},
		container.VolumeMounts,
		func(m corev1.VolumeMount) string { return m.MountPath },
	)
}

func outputEnvVars(sj *v1alpha1.SequentialJob, step string) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for i := range sj.Spec.Containers {
		earlier := &sj.Spec.Containers[i]
		if earlier.Name == step {
			break
		}
		if !earlier.Options().Outputs {
			continue
		}
		variables = append(variables, corev1.EnvVar{
			Name: outputEnvName(earlier.Name),
			ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: OutputsName(sj)},
				Key:                  earlier.Name,
				Optional:             new(true), // a failed step has no output
			}},
		})
	}
	return variables
}

func jobLabels(sj *v1alpha1.SequentialJob, step string) map[string]string {
	var labels map[string]string
	if sj.Spec.JobMetadata != nil {
		labels = maps.Clone(sj.Spec.JobMetadata.Labels)
	}
	labels = addStepLabels(labels, sj, step)
	decision.SetScheduleLabel(labels, sj)
	labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByValue // the operator may manage only Jobs with this label
	return labels
}

func jobAnnotations(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, run int32) map[string]string {
	annotations := map[string]string{}
	if sj.Spec.JobMetadata != nil {
		maps.Copy(annotations, sj.Spec.JobMetadata.Annotations)
	}
	annotations[v1alpha1.AnnotationRun] = strconv.Itoa(int(run))
	annotations[v1alpha1.AnnotationSpecHash] = stepHash(step)
	if step.Step != nil {
		options := step.Step.DeepCopy()
		options.PodTemplate = nil                          // the Job's template has it
		if raw, err := json.Marshal(options); err == nil { // API types always marshal
			annotations[v1alpha1.AnnotationStepOptions] = string(raw)
		}
	}
	return annotations
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
	for key, value := range applicationLabels(sj, step) {
		if _, isSet := labels[key]; !isSet {
			labels[key] = value
		}
	}
	labels[v1alpha1.LabelStep] = step
	labels[v1alpha1.LabelSequentialJob] = labelValue(sj.Name)
	labels[v1alpha1.LabelSequentialJobUID] = string(sj.UID)
	return labels
}

func childLabels(sj *v1alpha1.SequentialJob, component string) map[string]string {
	labels := applicationLabels(sj, component)
	labels[v1alpha1.LabelSequentialJob] = labelValue(sj.Name)
	labels[v1alpha1.LabelSequentialJobUID] = string(sj.UID)
	return labels
}

// applicationLabels returns the labels that Kubernetes recommends, with values from the labels of the SequentialJob.
func applicationLabels(sj *v1alpha1.SequentialJob, component string) map[string]string {
	name := labelValue(sj.Name)
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue,
		labelAppName:            cmp.Or(sj.Labels[labelAppName], "sequentialjob"),
		labelAppInstance:        cmp.Or(sj.Labels[labelAppInstance], name),
		labelAppPartOf:          cmp.Or(sj.Labels[labelAppPartOf], name),
		labelAppComponent:       component,
	}
}
