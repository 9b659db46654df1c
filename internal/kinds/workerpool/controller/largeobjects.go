package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimWorkerPool is a cache transform. A trimmed WorkerPool keeps its Queues, by which WorkerPools are found, and its status.
var TrimWorkerPool = kube.TrimLarge(func(p *v1alpha1.WorkerPool) { p.Spec.Template = nil })

// TrimDeployment and TrimStatefulSet are cache transforms for revisions. Without its template, a large revision seems to have drifted,
// so it is applied once after each change, and after a start of the operator.
var (
	TrimDeployment = kube.TrimLarge(func(d *appsv1.Deployment) {
		d.Spec.Template, d.Spec.Selector = trimTemplate(&d.Spec.Template), trimSelector(d.Spec.Selector)
	})
	TrimStatefulSet = kube.TrimLarge(func(s *appsv1.StatefulSet) {
		s.Spec.Template, s.Spec.Selector, s.Spec.VolumeClaimTemplates = trimTemplate(&s.Spec.Template), trimSelector(s.Spec.Selector), nil
	})
)

// maxTrimmedBytes is more than the fields of a template need that a revision of the operator has.
const maxTrimmedBytes = 4 << 10

// trimTemplate keeps the fields of a template from which newRevision derives a revision.
func trimTemplate(template *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	pod := &template.Spec
	kept := corev1.PodTemplateSpec{}
	image, secret := workerpool.SidecarImage(pod), workerpool.PreStopSecretOf(pod)
	if len(image)+len(secret) > maxTrimmedBytes {
		return kept
	}
	kept.Spec.TerminationGracePeriodSeconds = pod.TerminationGracePeriodSeconds
	if image != "" {
		kept.Spec.InitContainers = []corev1.Container{{Name: workerpool.SidecarContainer, Image: image}}
	}
	if secret != "" {
		kept.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: workerpool.EnvPreStopSecret, Value: secret}}}}
	}
	return kept
}

// trimSelector keeps the hash of a revision.
func trimSelector(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{workerpool.LabelRevision: selector.MatchLabels[workerpool.LabelRevision]}}
}

// TrimPod is a cache transform for workers, of whose spec decisions read only the node.
func TrimPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	}
	return kube.TrimObject(object)
}
