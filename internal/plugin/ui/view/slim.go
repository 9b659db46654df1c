package view

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// maxPromptBytes limits a session's prompt in memory.
const maxPromptBytes = 16 << 10

// Slim removes the fields that no page shows from an object without other users, so that thousands of objects fit into memory.
func Slim(object any) {
	if metadata, ok := object.(metav1.Object); ok {
		metadata.SetManagedFields(nil)
		metadata.SetLabels(nil)
		metadata.SetFinalizers(nil)
		kept := maps.Clone(metadata.GetAnnotations())
		maps.DeleteFunc(kept, func(key, value string) bool {
			return !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") || len(value) >= maxPromptBytes
		})
		metadata.SetAnnotations(kept)
	}
	switch object := object.(type) {
	case *v1alpha1.SequentialJob:
		object.Spec.Template, object.Spec.JobMetadata = nil, nil
		slimSteps(object.Spec.Containers)
	case *v1alpha1.AgenticSession:
		spec := &object.Spec
		spec.Prompt = shorten(spec.Prompt)
		spec.EnvironmentVariables, spec.EnvFrom, spec.SecretMounts, spec.UserContext, spec.Agent = nil, nil, nil, nil, v1alpha1.SessionAgent{}
		if object.Status.Result != nil {
			object.Status.Result.Summary = shorten(object.Status.Result.Summary)
		}
	case *v1alpha1.WorkerPool:
		object.Spec.Template = nil
	case *v1alpha1.Schedule:
		slimTemplate(object.Spec.SequentialJob)
		slimTemplate(object.Spec.AgenticSession)
		if object.Spec.Message != nil {
			object.Spec.Message.Payload, object.Spec.Message.Headers = nil, nil
		}
	}
}

func slimSteps(steps []v1alpha1.Step) {
	for i := range steps {
		step := &steps[i]
		step.Container = corev1.Container{Image: step.Image}
		if step.Step != nil {
			step.Step.PodTemplate, step.Step.PodFailurePolicy, step.Step.SuccessPolicy = nil, nil, nil
		}
	}
}

func slimTemplate(template *v1alpha1.ScheduleTemplate) {
	if template != nil {
		template.Metadata, template.Spec = nil, runtime.RawExtension{}
	}
}

func shorten(text string) string {
	if len(text) <= maxPromptBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxPromptBytes], "") + " …"
}
