package sequence

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
)

// workspaceVolume is the name of the workspace's volume in a step's Pod.
const workspaceVolume = "workspace"

// stepJob returns the Job for one attempt at a step.
func stepJob(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, run, attempt int32) *batchv1.Job {
	options := step.Options()
	template := podTemplate(sj, step)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            jobName(sj, run, step.Name, attempt),
			Namespace:       sj.Namespace,
			Labels:          jobLabels(sj, step.Name),
			Annotations:     jobAnnotations(sj, step, run, contentHash(template)),
			OwnerReferences: core.ControllerReferences("SequentialJob", sj),
		},
		Spec: batchv1.JobSpec{
			Parallelism:           options.Parallelism,
			Completions:           options.Completions,
			CompletionMode:        options.CompletionMode,
			BackoffLimit:          cmp.Or(options.BackoffLimit, new(int32(0))),
			ActiveDeadlineSeconds: options.ActiveDeadlineSeconds,
			PodFailurePolicy:      options.PodFailurePolicy.DeepCopy(),
			// A failed Pod is replaced only once it has stopped, so that a step never runs
			// twice at a time.
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             template,
		},
	}
}

// podTemplate returns spec.template with the step's container.
func podTemplate(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{}
	if sj.Spec.Template != nil {
		template = *sj.Spec.Template.DeepCopy()
	}
	if template.Spec.RestartPolicy == "" {
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	template.Labels = addStepLabels(template.Labels, sj, step.Name)

	container := mergeContainer(containerDefaults(sj), step.AsContainer())
	container.Name = step.Name
	container.Env = append(outputEnvVars(sj, step.Name), container.Env...)
	if workspace := sj.Spec.Workspace; workspace != nil {
		mountWorkspace(&template.Spec, &container, WorkspaceName(sj), workspace.MountPath)
	}
	template.Spec.Containers = []corev1.Container{container}
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

// outputEnvVars returns the environment variables with the outputs of earlier steps. They come
// first in a step's environment, so that the step's variables can refer to them.
func outputEnvVars(sj *v1alpha1.SequentialJob, step string) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for _, earlier := range allStepSpecs(&sj.Spec) {
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

// jobLabels returns the labels from spec.jobMetadata, overridden by those of the operator.
func jobLabels(sj *v1alpha1.SequentialJob, step string) map[string]string {
	var labels map[string]string
	if sj.Spec.JobMetadata != nil {
		labels = maps.Clone(sj.Spec.JobMetadata.Labels)
	}
	return addStepLabels(labels, sj, step)
}

func jobAnnotations(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, run int32, templateHash string) map[string]string {
	annotations := map[string]string{}
	if sj.Spec.JobMetadata != nil {
		maps.Copy(annotations, sj.Spec.JobMetadata.Annotations)
	}
	annotations[v1alpha1.AnnotationRun] = strconv.Itoa(int(run))
	annotations[v1alpha1.AnnotationGeneration] = strconv.FormatInt(sj.Generation, 10)
	annotations[v1alpha1.AnnotationSpecHash] = contentHash(step)
	annotations[v1alpha1.AnnotationTemplateHash] = templateHash
	if step.Step != nil {
		if raw, err := json.Marshal(step.Step); err == nil { // API types always marshal
			annotations[v1alpha1.AnnotationStepOptions] = string(raw)
		}
	}
	return annotations
}

// jobOptions returns the step options that the Job was created with.
func jobOptions(job *batchv1.Job) *v1alpha1.StepOptions {
	options := &v1alpha1.StepOptions{}
	if raw := job.Annotations[v1alpha1.AnnotationStepOptions]; raw != "" {
		if err := json.Unmarshal([]byte(raw), options); err != nil {
			return &v1alpha1.StepOptions{} // the annotation was edited; the defaults are the strictest options
		}
	}
	return options
}

func addStepLabels(labels map[string]string, sj *v1alpha1.SequentialJob, step string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelStep] = step
	maps.Copy(labels, childLabels(sj))
	return labels
}

// childLabels returns the labels of every object that is created for a SequentialJob.
func childLabels(sj *v1alpha1.SequentialJob) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy:        v1alpha1.ManagedByValue,
		v1alpha1.LabelSequentialJob:    labelValue(sj.Name),
		v1alpha1.LabelSequentialJobUID: string(sj.UID),
	}
}

// JobFingerprint returns a hash of everything in a Job except its name, its owner and the
// operator's marks of them. If the API server accepts a Job in a dry run, it accepts a Job with
// the same fingerprint as well.
func JobFingerprint(job *batchv1.Job) string {
	anonymous := job.DeepCopy()
	for _, labels := range []map[string]string{anonymous.Labels, anonymous.Spec.Template.Labels} {
		delete(labels, v1alpha1.LabelSequentialJob)
		delete(labels, v1alpha1.LabelSequentialJobUID)
	}
	for _, annotation := range []string{
		v1alpha1.AnnotationRun, v1alpha1.AnnotationGeneration,
		v1alpha1.AnnotationSpecHash, v1alpha1.AnnotationTemplateHash,
	} {
		delete(anonymous.Annotations, annotation)
	}
	return anonymous.Namespace + "/" + contentHash([]any{anonymous.Labels, anonymous.Annotations, anonymous.Spec})
}

// allStepSpecs returns the steps of containers, then those of finally.
func allStepSpecs(spec *v1alpha1.SequentialJobSpec) []*v1alpha1.Step {
	steps := make([]*v1alpha1.Step, 0, len(spec.Containers)+len(spec.Finally))
	for i := range spec.Containers {
		steps = append(steps, &spec.Containers[i])
	}
	for i := range spec.Finally {
		steps = append(steps, &spec.Finally[i])
	}
	return steps
}
