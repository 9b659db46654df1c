package workerpool

import (
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// workloadBuilder builds the objects of a pool.
type workloadBuilder struct {
	pool     *v1alpha1.WorkerPool
	drain    v1alpha1.Drain
	config   WorkerConfig
	operator OperatorSettings
	// terminationGrace is the grace period of a worker's Pod, and defaultGrace true if it is a default. hashedGrace is the
	// grace period in the hash of a template: for a default, except in mode Signal, policy.MinTerminationGrace.
	terminationGrace, hashedGrace time.Duration
	defaultGrace                  bool
}

func newWorkloadBuilder(wp *v1alpha1.WorkerPool, effective *v1alpha1.WorkerPoolEffective, config WorkerConfig, operator OperatorSettings) *workloadBuilder {
	drain := *effective.Drain
	b := &workloadBuilder{
		pool: wp, drain: drain, config: config, operator: operator, terminationGrace: drain.TerminationGrace.Duration.Duration,
		defaultGrace: slices.Contains(effective.Sources, v1alpha1.FieldSource{Field: policy.DrainTerminationGrace, From: v1alpha1.FromDefault}),
	}
	if drain.Mode == v1alpha1.DrainSignal { // SIGTERM starts draining
		b.terminationGrace += drain.Timeout.Duration.Duration
	}
	b.hashedGrace = b.terminationGrace
	if b.defaultGrace && drain.Mode != v1alpha1.DrainSignal {
		b.hashedGrace = policy.MinTerminationGrace
	}
	return b
}

// sharedObjects returns the objects that all revisions use, in the order in which workers need them. networkPolicies
// are all NetworkPolicies of the namespace.
func (b *workloadBuilder) sharedObjects(updated *revisionState, networkPolicies []networkingv1.NetworkPolicy) []decision.Object {
	selector := WorkerSelector(b.pool.Name)
	maxUnavailable := ptr.Deref(b.pool.Spec.Disruption, v1alpha1.Disruption{}).MaxUnavailable
	objects := []decision.Object{
		&corev1.ServiceAccount{
			TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta:                   b.sharedMetadata(),
			AutomountServiceAccountToken: new(false),
		},
		b.buildConfigMap(),
		&corev1.Service{ // headless: it gives each worker a DNS name
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: b.sharedMetadata(),
			Spec: corev1.ServiceSpec{
				ClusterIP:                corev1.ClusterIPNone,
				Selector:                 selector,
				PublishNotReadyAddresses: true,
				Ports: []corev1.ServicePort{{
					Name: adminPortName, Port: AdminPort, TargetPort: intstr.FromInt32(AdminPort), Protocol: corev1.ProtocolTCP,
				}},
			},
		},
		&policyv1.PodDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
			ObjectMeta: b.sharedMetadata(),
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: intstr.ValueOrDefault(maxUnavailable, intstr.FromInt32(1)),
				Selector:       &metav1.LabelSelector{MatchLabels: selector},
				// A worker that never becomes ready must not block the drain of its node.
				UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
			},
		},
	}
	if b.operator.Namespace != "" {
		objects = append(objects, b.buildNetworkPolicy(TemplateOf(updated.workload).Labels, networkPolicies))
	}
	return objects
}

func (b *workloadBuilder) buildConfigMap() decision.Object {
	data := map[string]string{configKeyConcurrency: strconv.Itoa(int(b.pool.Spec.Concurrency))}
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

// buildWorkload returns the Deployment or StatefulSet of the updated revision.
func (b *workloadBuilder) buildWorkload(hash string, template corev1.PodTemplateSpec) decision.Object {
	wp := b.pool
	meta := b.childMetadata(childObjectName(wp.Name, hash))
	meta.Labels[LabelRevision] = hash
	if wp.Spec.Version != "" {
		meta.Labels[LabelAppVersion] = wp.Spec.Version
	}
	worker := indexOfContainer(template.Spec.Containers, v1alpha1.WorkerContainer)
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
		}
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
	}
}

func (b *workloadBuilder) sharedMetadata() metav1.ObjectMeta {
	return b.childMetadata(sharedObjectName(b.pool.Name))
}

// Labels and annotations of the objects of a pool.
const (
	// LabelWorkerPool is the pool's name, truncated to the length of a label value. It selects the workers. Ownership
	// is always determined by the controller reference.
	LabelWorkerPool = v1alpha1.Prefix + "workerpool"
	// LabelRevision is the hash of a worker's revision.
	LabelRevision = v1alpha1.Prefix + "revision"
	// AnnotationWorkerPool on a worker's Pod is the pool's full name.
	AnnotationWorkerPool = v1alpha1.Prefix + "workerpool"
	// annotationConnection on a worker's Pod has settings of its connection to the broker, if any.
	annotationConnection = v1alpha1.Prefix + "broker-connection"
	// LabelAppVersion is the recommended label for the version.
	LabelAppVersion = "app.kubernetes.io/version"

	// AnnotationRolloutHistory on a revision is the History of its rollout, in JSON.
	AnnotationRolloutHistory = v1alpha1.Prefix + "rollout-history"
	// AnnotationImage on a revision is the image of its worker container, for display.
	AnnotationImage = v1alpha1.Prefix + "image"
	// AnnotationDraining, AnnotationIdle and AnnotationRemovable on a Pod are the times of its worker's drain states.
	AnnotationDraining  = v1alpha1.Prefix + "draining"
	AnnotationIdle      = v1alpha1.Prefix + "idle"
	AnnotationRemovable = v1alpha1.Prefix + "removable"
	// AnnotationAbandon on a WorkerPool that is being deleted skips draining, for example if its broker no longer
	// exists.
	AnnotationAbandon = v1alpha1.Prefix + "abandon"
)

const (
	// maxNameLength leaves room for the hash that the StatefulSet controller appends in labels.
	maxNameLength  = 52
	hashLength     = 10
	maxLabelLength = 63
)

// childObjectName returns "<owner>-<part>" as a DNS label. If the owner's name must be changed, its hash is added, so
// that different owners get different names.
func childObjectName(owner, part string) string {
	prefix := strings.ReplaceAll(owner, ".", "-")
	room := maxNameLength - len(part) - 1
	startsWithLetter := prefix[0] >= 'a' && prefix[0] <= 'z' // as a Service's name must
	if prefix == owner && len(prefix) <= room && startsWithLetter {
		return prefix + "-" + part
	}
	if !startsWithLetter {
		prefix = "p" + prefix
	}
	suffix := "-" + decision.HexDigest([]byte(owner), hashLength/2)
	if room -= len(suffix); len(prefix) > room {
		prefix = prefix[:room]
	}
	return strings.TrimRight(prefix, "-") + suffix + "-" + part
}

func sharedObjectName(owner string) string { return childObjectName(owner, "workers") }

// WorkerSelector returns the labels that select a pool's workers.
func WorkerSelector(owner string) map[string]string {
	value := owner
	if len(owner) > maxLabelLength {
		suffix := "-" + decision.HexDigest([]byte(owner), hashLength)
		value = strings.TrimRight(owner[:maxLabelLength-len(suffix)], "-.") + suffix
	}
	return map[string]string{LabelWorkerPool: value}
}

// HashJSON returns a short hash of a value's JSON form.
func HashJSON(value any) string { return decision.ContentHash(value, hashLength) }

func objectLabels(owner string) map[string]string {
	return labels.Merge(WorkerSelector(owner), labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue})
}

func (b *workloadBuilder) childMetadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: b.pool.Namespace, Labels: objectLabels(b.pool.Name),
		OwnerReferences: decision.ControllerReferences("WorkerPool", b.pool),
	}
}

// HasDrifted reports whether fields that the operator set on a revision were changed. It ignores added fields, and
// replicas and history, which are written separately.
func HasDrifted(desired, found decision.Object) bool {
	if !equality.Semantic.DeepDerivative(desired.GetLabels(), found.GetLabels()) ||
		desired.GetAnnotations()[AnnotationImage] != found.GetAnnotations()[AnnotationImage] {
		return true
	}
	// The JSON form of a Pod template, which always has one, is without unset fields, of which the API server sets many.
	wanted, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(TemplateOf(desired))
	existing, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(TemplateOf(found))
	return !isContained(wanted, existing)
}

// isContained reports whether a value has all fields of the desired value.
func isContained(desired, found any) bool {
	switch desired := desired.(type) {
	case nil:
		return true
	case map[string]any:
		found, _ := found.(map[string]any)
		for key, value := range desired {
			if !isContained(value, found[key]) {
				return false
			}
		}
		return true
	case []any:
		found, _ := found.([]any)
		if len(found) < len(desired) { // other clients may have appended items
			return false
		}
		for i := range desired {
			if !isContained(desired[i], found[i]) {
				return false
			}
		}
		return true
	}
	return desired == found
}

var operatorLabels = map[string]string{
	"app.kubernetes.io/name": "yardmaster", "app.kubernetes.io/component": "operator",
}

const firstPort, lastPort int32 = 1, 65535

// buildNetworkPolicy returns the NetworkPolicy of the pool's workers, which closes the admin port to all Pods but the
// operator's. Kubernetes always allows requests from the node, such as the kubelet's.
//
// NetworkPolicies only allow. If another NetworkPolicy restricts the workers, this NetworkPolicy must not open their
// other ports, so it allows only the operator. workers are the labels of the workers.
func (b *workloadBuilder) buildNetworkPolicy(workers map[string]string, others []networkingv1.NetworkPolicy) decision.Object {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: b.sharedMetadata(),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: WorkerSelector(b.pool.Name)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: b.operator.Namespace}},
					PodSelector:       &metav1.LabelSelector{MatchLabels: operatorLabels},
				}},
				Ports: []networkingv1.NetworkPolicyPort{portRange(corev1.ProtocolTCP, AdminPort, AdminPort)},
			}},
		},
	}
	restricts := func(other networkingv1.NetworkPolicy) bool {
		types := other.Spec.PolicyTypes
		if metav1.IsControlledBy(&other, b.pool) || len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeIngress) {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(&other.Spec.PodSelector)
		return err == nil && selector.Matches(labels.Set(workers))
	}
	switch {
	case b.pool.Spec.NetworkPolicy == v1alpha1.PoolNetworkPolicyNone:
		// It selects no Pods, because the operator is not permitted to delete NetworkPolicies.
		policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: LabelWorkerPool, Operator: metav1.LabelSelectorOpDoesNotExist},
		}
	case !slices.ContainsFunc(others, restricts): // all ports except the admin port
		policy.Spec.Ingress = append(policy.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{
			portRange(corev1.ProtocolTCP, firstPort, AdminPort-1),
			portRange(corev1.ProtocolTCP, AdminPort+1, lastPort),
			portRange(corev1.ProtocolUDP, firstPort, lastPort),
			portRange(corev1.ProtocolSCTP, firstPort, lastPort),
		}})
	}
	return policy
}

func portRange(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	r := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(first))}
	if last != first {
		r.EndPort = &last
	}
	return r
}
