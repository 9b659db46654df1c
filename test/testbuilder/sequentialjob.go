// Package testbuilder builds objects for tests. Fields that a builder does not set have the API
// server's defaults.
package testbuilder

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// SequentialJobBuilder builds a SequentialJob.
type SequentialJobBuilder struct{ sj v1alpha1.SequentialJob }

// SequentialJob returns a builder for a SequentialJob of generation 1 without steps.
func SequentialJob(name, namespace string) *SequentialJobBuilder {
	return &SequentialJobBuilder{v1alpha1.SequentialJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec: v1alpha1.SequentialJobSpec{
			SuspendPolicy: v1alpha1.SuspendAfterCurrent,
			OnLostJob:     v1alpha1.LostJobFail,
		},
	}}
}

// Obj returns a copy of the SequentialJob.
func (b *SequentialJobBuilder) Obj() *v1alpha1.SequentialJob { return b.sj.DeepCopy() }

// Step appends a step to containers.
func (b *SequentialJobBuilder) Step(name string, options ...StepOption) *SequentialJobBuilder {
	b.sj.Spec.Containers = append(b.sj.Spec.Containers, Step(name, options...))
	return b
}

// Finally appends a step with the option finally.
func (b *SequentialJobBuilder) Finally(name string, options ...StepOption) *SequentialJobBuilder {
	return b.Step(name, append(options, WithStepOptions(func(o *v1alpha1.StepOptions) { o.Finally = true }))...)
}

// Template sets the Pod template.
func (b *SequentialJobBuilder) Template(template corev1.PodTemplateSpec) *SequentialJobBuilder {
	b.sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: template}
	return b
}

// Defaults sets a template with only the container for defaults.
func (b *SequentialJobBuilder) Defaults(container corev1.Container) *SequentialJobBuilder {
	container.Name = "step"
	return b.Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}})
}

// JobLabel adds a label for the child Jobs.
func (b *SequentialJobBuilder) JobLabel(key, value string) *SequentialJobBuilder {
	if b.sj.Spec.JobMetadata == nil {
		b.sj.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{}}
	}
	b.sj.Spec.JobMetadata.Labels[key] = value
	return b
}

// Suspend suspends the sequence.
func (b *SequentialJobBuilder) Suspend() *SequentialJobBuilder {
	b.sj.Spec.Suspend = true
	return b
}

// SuspendImmediately sets the suspend policy that terminates the Pods of the running step.
func (b *SequentialJobBuilder) SuspendImmediately() *SequentialJobBuilder {
	b.sj.Spec.SuspendPolicy = v1alpha1.SuspendImmediate
	return b
}

// ActiveDeadline sets activeDeadlineSeconds.
func (b *SequentialJobBuilder) ActiveDeadline(seconds int64) *SequentialJobBuilder {
	b.sj.Spec.ActiveDeadlineSeconds = &seconds
	return b
}

// TTLAfterFinished sets ttlSecondsAfterFinished.
func (b *SequentialJobBuilder) TTLAfterFinished(seconds int32) *SequentialJobBuilder {
	b.sj.Spec.TTLSecondsAfterFinished = &seconds
	return b
}

// RerunLostJobs sets onLostJob to Rerun.
func (b *SequentialJobBuilder) RerunLostJobs() *SequentialJobBuilder {
	b.sj.Spec.OnLostJob = v1alpha1.LostJobRerun
	return b
}

// RecreateLostWorkspace sets workspace.onLost to Recreate.
func (b *SequentialJobBuilder) RecreateLostWorkspace() *SequentialJobBuilder {
	b.workspace().OnLost = v1alpha1.LostWorkspaceRecreate
	return b
}

// Rerun requests a rerun.
func (b *SequentialJobBuilder) Rerun(id, from string) *SequentialJobBuilder {
	b.sj.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: id}, From: from}
	return b
}

// ManagedBy sets another controller.
func (b *SequentialJobBuilder) ManagedBy(manager string) *SequentialJobBuilder {
	b.sj.Spec.ManagedBy = &manager
	return b
}

// Workspace adds a volume of 1 GiB at /workspace.
func (b *SequentialJobBuilder) Workspace(retention v1alpha1.WorkspaceRetention) *SequentialJobBuilder {
	workspace := b.workspace()
	workspace.Size, workspace.AccessMode = new(resource.MustParse("1Gi")), corev1.ReadWriteOnce
	workspace.MountPath, workspace.Retention = "/workspace", retention
	return b
}

func (b *SequentialJobBuilder) workspace() *v1alpha1.Workspace {
	if b.sj.Spec.Workspace == nil {
		b.sj.Spec.Workspace = &v1alpha1.Workspace{}
	}
	return b.sj.Spec.Workspace
}

// StepOption changes a step.
type StepOption func(*v1alpha1.Step)

// Step returns a step with an image.
func Step(name string, options ...StepOption) v1alpha1.Step {
	step := v1alpha1.Step{
		Name:      name,
		Container: corev1.Container{Image: "registry.example/" + name + ":1"},
	}
	for _, option := range options {
		option(&step)
	}
	return step
}

// WithStepOptions sets a step's options.
func WithStepOptions(set func(*v1alpha1.StepOptions)) StepOption {
	return func(step *v1alpha1.Step) {
		if step.Step == nil {
			step.Step = &v1alpha1.StepOptions{BackoffLimit: new(int32), OnFailure: v1alpha1.OnFailureStop}
		}
		set(step.Step)
	}
}

// ContinueOnFailure continues the sequence when the step fails.
func ContinueOnFailure() StepOption {
	return WithStepOptions(func(o *v1alpha1.StepOptions) { o.OnFailure = v1alpha1.OnFailureContinue })
}

// RecordOutput records the step's output.
func RecordOutput() StepOption {
	return WithStepOptions(func(o *v1alpha1.StepOptions) { o.Outputs = true })
}

// StepStartDeadline sets the step's startDeadlineSeconds.
func StepStartDeadline(seconds int64) StepOption {
	return WithStepOptions(func(o *v1alpha1.StepOptions) { o.StartDeadlineSeconds = &seconds })
}

// StepImage sets the step's image.
func StepImage(image string) StepOption {
	return func(step *v1alpha1.Step) { step.Image = image }
}

// ChangeContainer changes the step's container.
func ChangeContainer(change func(*corev1.Container)) StepOption {
	return func(step *v1alpha1.Step) { change(&step.Container) }
}
