package workerpool

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// PodMonitorKind is the kind of the Prometheus operator.
var PodMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}

// workloadBuilder builds the objects of a pool.
type workloadBuilder struct {
	pool  *v1alpha1.WorkerPool
	drain v1alpha1.Drain
	// defaultGrace is true if drain.terminationGrace is a default.
	defaultGrace bool
	config       WorkerConfig
	operator     OperatorSettings
}

// sharedObjects returns the objects that all revisions use, in the order in which workers need
// them. networkPolicies are those of the namespace.
func (b *workloadBuilder) sharedObjects(updated *revisionState, networkPolicies []networkingv1.NetworkPolicy) []decision.Object {
	objects := []decision.Object{b.buildServiceAccount(), b.buildConfigMap(), b.buildService(), b.buildDisruptionBudget()}
	if b.operator.Namespace != "" {
		objects = append(objects, b.buildNetworkPolicy(podLabelsOf(updated.workload), networkPolicies))
	}
	if b.operator.PodMonitors {
		objects = append(objects, b.buildPodMonitor(updated.metricsPort()))
	}
	return objects
}

func (b *workloadBuilder) buildServiceAccount() decision.Object {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   b.sharedMetadata(),
		AutomountServiceAccountToken: new(false),
	}
}

func (b *workloadBuilder) buildConfigMap() decision.Object {
	data := map[string]string{configKeyConcurrency: strconv.Itoa(int(workerConcurrency(b.pool)))}
	if b.config.File != "" {
		data[configFileName], data[configKeyQueues] = b.config.File, b.config.Queues
	}
	if admin := b.operator.Admin; admin != nil {
		data[AdminKeyFileName] = admin.PublicKey
	}
	if b.operator.OmitObjectNames {
		data[configKeyOmitObjectNames] = strconv.FormatBool(true)
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: b.sharedMetadata(),
		Data:       data,
	}
}

// buildService returns the headless Service that gives each worker a DNS name.
func (b *workloadBuilder) buildService() decision.Object {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: b.sharedMetadata(),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 WorkerSelector(b.pool.Name),
			PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{
				Name: adminPortName, Port: AdminPort, TargetPort: intstr.FromInt32(AdminPort), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

func (b *workloadBuilder) buildDisruptionBudget() decision.Object {
	disruption := ptr.Deref(b.pool.Spec.Disruption, v1alpha1.Disruption{})
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: b.sharedMetadata(),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: intstr.ValueOrDefault(disruption.MaxUnavailable, intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: WorkerSelector(b.pool.Name)},
			// A worker that never becomes ready must not block the drain of its node.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

func (b *workloadBuilder) buildPodMonitor(port string) decision.Object {
	selector := map[string]any{}
	for key, value := range WorkerSelector(b.pool.Name) {
		selector[key] = value
	}
	monitor := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":            map[string]any{"matchLabels": selector},
		"podMetricsEndpoints": []any{map[string]any{"port": port, "path": "/metrics"}},
	}}}
	monitor.SetGroupVersionKind(PodMonitorKind)
	meta := b.sharedMetadata()
	monitor.SetName(meta.Name)
	monitor.SetNamespace(meta.Namespace)
	if spec := b.pool.Spec.PodMonitor; spec != nil {
		for key, value := range spec.Labels {
			meta.Labels[key] = string(value)
		}
	}
	monitor.SetLabels(meta.Labels)
	monitor.SetOwnerReferences(meta.OwnerReferences)
	return monitor
}

// buildWorkload returns the Deployment or StatefulSet of the revision that the spec asks for, and
// the revision's hash.
func (b *workloadBuilder) buildWorkload() (workload decision.Object, hash string) {
	wp := b.pool
	template := b.buildTemplate()
	hash = b.templateHash(&template)
	setRevisionHash(&template, hash)
	meta := childMetadata(wp, RevisionName(wp.Name, hash))
	meta.Labels[LabelRevision] = hash
	if wp.Spec.Version != "" {
		meta.Labels[LabelAppVersion] = wp.Spec.Version
	}
	worker := slices.IndexFunc(template.Spec.Containers, isWorkerContainer)
	meta.Annotations = map[string]string{AnnotationImage: template.Spec.Containers[worker].Image}
	selector := WorkerSelector(wp.Name)
	selector[LabelRevision] = hash
	if wp.Spec.Workload == v1alpha1.WorkloadStatefulSet {
		return &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
			ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{
				Replicas:             new(int32(0)),
				ServiceName:          sharedObjectName(wp.Name),
				Selector:             &metav1.LabelSelector{MatchLabels: selector},
				Template:             template,
				RevisionHistoryLimit: new(int32(0)),
				PodManagementPolicy:  appsv1.ParallelPodManagement,
			},
		}, hash
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas:             new(int32(0)),
			Selector:             &metav1.LabelSelector{MatchLabels: selector},
			Template:             template,
			RevisionHistoryLimit: new(int32(0)),
		},
	}, hash
}

// templateHash identifies a revision. It covers the Pod template and the kind of workload, but
// not the settings that workers read from their configuration file. It does not cover the image of the
// sidecar, the protection of the admin API, or a default of the grace period, so that an upgrade of the
// operator or another drain.timeout does not restart workers.
func (b *workloadBuilder) templateHash(t *corev1.PodTemplateSpec) string {
	if grace := b.terminationGrace(); grace != b.hashedGrace() {
		setTerminationGrace(&t.Spec, b.hashedGrace())
		defer setTerminationGrace(&t.Spec, grace)
	}
	if sidecar := sidecarOf(&t.Spec); sidecar != nil {
		image := sidecar.Image
		sidecar.Image = ""
		defer func() { sidecar.Image = image }()
	}
	return HashJSON(struct {
		Template *corev1.PodTemplateSpec
		Workload v1alpha1.Workload
	}{t, b.pool.Spec.Workload})
}

func (b *workloadBuilder) sharedMetadata() metav1.ObjectMeta {
	return childMetadata(b.pool, sharedObjectName(b.pool.Name))
}

func workerConcurrency(wp *v1alpha1.WorkerPool) int32 { return max(wp.Spec.Concurrency, 1) }
