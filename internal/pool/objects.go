package pool

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// PodMonitorKind is that of the Prometheus operator.
var PodMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}

// sharedObjects are the objects that all revisions of the pool have in common, in the order in
// which workers need them.
func (d *evaluation) sharedObjects() []Object {
	objects := []Object{d.buildServiceAccount(), d.buildConfigMap(), d.buildService(), d.buildDisruptionBudget()}
	if d.observation.Operator.PodMonitors {
		objects = append(objects, d.buildPodMonitor())
	}
	return objects
}

func (d *evaluation) buildServiceAccount() Object {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   d.sharedMetadata(),
		AutomountServiceAccountToken: new(false),
	}
}

func (d *evaluation) buildConfigMap() Object {
	data := map[string]string{configKeyConcurrency: strconv.Itoa(int(workerConcurrency(d.observation.Pool)))}
	if d.observation.Config.File != "" {
		data[configFileName], data[configKeyQueues] = d.observation.Config.File, d.observation.Config.Queues
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: d.sharedMetadata(),
		Data:       data,
	}
}

// buildService gives each worker a name. It needs no address of its own: nobody asks just any.
func (d *evaluation) buildService() Object {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: d.sharedMetadata(),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 WorkerSelector(d.observation.Pool.Name),
			PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{
				Name: adminPortName, Port: AdminPort, TargetPort: intstr.FromInt32(AdminPort), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

func (d *evaluation) buildDisruptionBudget() Object {
	unavailable := intstr.FromInt32(1)
	if disruption := d.observation.Pool.Spec.Disruption; disruption != nil && disruption.MaxUnavailable != nil {
		unavailable = *disruption.MaxUnavailable
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: d.sharedMetadata(),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &unavailable,
			Selector:       &metav1.LabelSelector{MatchLabels: WorkerSelector(d.observation.Pool.Name)},
			// A worker that never gets ready must not keep a node from being drained.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

func (d *evaluation) buildPodMonitor() Object {
	selector := map[string]any{}
	for key, value := range WorkerSelector(d.observation.Pool.Name) {
		selector[key] = value
	}
	monitor := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":            map[string]any{"matchLabels": selector},
		"podMetricsEndpoints": []any{map[string]any{"port": adminPortName, "path": "/metrics"}},
	}}}
	monitor.SetGroupVersionKind(PodMonitorKind)
	meta := d.sharedMetadata()
	monitor.SetName(meta.Name)
	monitor.SetNamespace(meta.Namespace)
	monitor.SetLabels(meta.Labels)
	monitor.SetOwnerReferences(meta.OwnerReferences)
	return monitor
}

// buildWorkload is a revision's Deployment or StatefulSet.
func (d *evaluation) buildWorkload(t *corev1.PodTemplateSpec, hash string) Object {
	wp := d.observation.Pool
	meta := childMetadata(wp, RevisionName(wp.Name, hash))
	meta.Labels[LabelRevision] = hash
	if wp.Spec.Version != "" {
		meta.Labels[LabelAppVersion] = wp.Spec.Version
	}
	meta.Annotations = map[string]string{AnnotationImage: d.workerImage()}
	selector := WorkerSelector(wp.Name)
	maps.Copy(selector, map[string]string{LabelRevision: hash})
	if wp.Spec.Workload == v1alpha1.WorkloadStatefulSet {
		return &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
			ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{
				Replicas:             new(int32(0)),
				ServiceName:          sharedObjectName(wp.Name),
				Selector:             &metav1.LabelSelector{MatchLabels: selector},
				Template:             *t,
				RevisionHistoryLimit: new(int32(0)),
				// Workers do not wait for one another.
				PodManagementPolicy: appsv1.ParallelPodManagement,
			},
		}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas:             new(int32(0)),
			Selector:             &metav1.LabelSelector{MatchLabels: selector},
			Template:             *t,
			RevisionHistoryLimit: new(int32(0)),
		},
	}
}

func (d *evaluation) sharedMetadata() metav1.ObjectMeta {
	return childMetadata(d.observation.Pool, sharedObjectName(d.observation.Pool.Name))
}

func workerConcurrency(wp *v1alpha1.WorkerPool) int32 { return max(wp.Spec.Concurrency, 1) }
