package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// TestClassesOfErrorsOfTheAPIServer provokes each error whose class only its message shows. A row is repeated until the API server
// answers with the message: quotas, policies and other configuration take effect with a delay.
func TestClassesOfErrorsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// provoke prepares the namespace, and returns a request that the API server refuses there.
		provoke func(t *testing.T, ns string) func() error
		message string
		want    decision.Class
	}{
		"exceeded quota":                   {provokeQuota("count/configmaps", "0", newConfigMap), "exceeded quota: ", decision.QuotaExceeded},
		"quota whose usage is not counted": {provokeUncountedQuota, "status unknown for quota: ", decision.QuotaExceeded},
		"quota on an unset resource":       {provokeQuota(corev1.ResourceLimitsCPU, "4", newPod), "failed quota: ", decision.QuotaExceeded},
		"PodSecurity":                      {provokePodSecurity, "is forbidden: violates PodSecurity ", decision.PolicyDenied},
		"LimitRange with a minimum": {
			provokeLimitRange(corev1.LimitRangeItem{Min: amounts("2", "")}), "is forbidden: minimum cpu ", decision.PolicyDenied,
		},
		"LimitRange with a maximum": {
			provokeLimitRange(corev1.LimitRangeItem{Max: amounts("100m", "")}), "is forbidden: maximum cpu ", decision.PolicyDenied,
		},
		"LimitRange with a ratio": {
			provokeLimitRange(corev1.LimitRangeItem{MaxLimitRequestRatio: amounts("1", "")}),
			"is forbidden: cpu max limit to request ratio ", decision.PolicyDenied,
		},
		"LimitRange with two violations": {
			provokeLimitRange(corev1.LimitRangeItem{Max: amounts("100m", "1Mi")}), "is forbidden: [maximum ", decision.PolicyDenied,
		},
		"RuntimeClass that does not exist":  {provokePod(withRuntimeClass("none")), "is forbidden: pod rejected: RuntimeClass", decision.PolicyDenied},
		"RuntimeClass for other nodes":      {provokeRuntimeClassConflict, "is forbidden: conflict: runtimeClass.", decision.PolicyDenied},
		"PriorityClass that does not exist": {provokePod(withPriorityClass("none")), "is forbidden: no PriorityClass with name ", decision.PolicyDenied},
		"service account that doesn't exist": {
			provokePod(withServiceAccount("none")), "is forbidden: error looking up service account ", decision.ServiceAccountMissing,
		},

		"policy that denies by default": {provokePolicy(admissionregistrationv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
		}, nil), "ValidatingAdmissionPolicy '", decision.PolicyDenied},
		"policy without its parameters": {provokePolicy(admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:   &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		}, &admissionregistrationv1.ParamRef{
			Name: "none", Namespace: "default", ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
		}), "denied request: failed to configure binding", decision.PolicyDenied},

		"webhook that denies without a reason": {provokeWebhook(metav1.Status{}), "denied the request", decision.PolicyDenied},
		"webhook that denies as Conflict": {
			provokeWebhook(metav1.Status{Reason: metav1.StatusReasonConflict, Code: http.StatusConflict, Message: "as requested"}),
			"denied the request: as requested", decision.PolicyDenied,
		},
		"webhook that cannot be called": {provokeWebhookAt("https://127.0.0.1:1", nil), "failed calling webhook", decision.Unavailable},

		"grant escalation":                     {provokeEscalation, `is forbidden: user "jane" (groups=`, decision.PermissionMissing},
		"terminating namespace":                {provokeTerminatingNamespace, "because it is being terminated", decision.NamespaceTerminating},
		"RuntimeClass with an invalid name":    {provokePod(withRuntimeClass("a/b")), `invalid resource name "a/b"`, decision.Invalid},
		"service account with an invalid name": {provokePod(withServiceAccount("a/b")), `invalid resource name "a/b"`, decision.Invalid},
		"undeclared field":                     {provokeUndeclaredField, "field not declared in schema", decision.Invalid},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			attempt := test.provoke(t, namespace(t))
			var last error
			require.NoError(t, poll.UntilNil(t.Context(), func() error {
				if last = attempt(); last == nil || !strings.Contains(last.Error(), test.message) {
					return fmt.Errorf("want an error with %q, got: %w", test.message, last)
				}
				return nil
			}))
			if got := decision.ClassOf(last); got != test.want {
				t.Errorf("the class of %q is %q, want %q", last, got, test.want)
			}
		})
	}
}

func newPod(ns string) client.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1.37"}}
	return pod
}

func newConfigMap(ns string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}
}

// creation returns a request that submits the object to admission without storing it.
func creation(t *testing.T, object client.Object) func() error {
	return func() error {
		return cluster.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

func provokePod(change func(*corev1.PodSpec)) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		pod := newPod(ns)
		change(&pod.(*corev1.Pod).Spec)
		return creation(t, pod)
	}
}

func withRuntimeClass(name string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) { pod.RuntimeClassName = &name }
}

func withPriorityClass(name string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) { pod.PriorityClassName = name }
}

func withServiceAccount(name string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) { pod.ServiceAccountName = name }
}

func newQuota(ns string, hard corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "quota-"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}

func provokeQuota(name corev1.ResourceName, hard string, object func(ns string) client.Object) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		mustCreate(t, newQuota(ns, corev1.ResourceList{name: resource.MustParse(hard)}))
		return creation(t, object(ns))
	}
}

// provokeUncountedQuota removes the usage from a quota's status, as it is before the quota's
// controller has counted for the first time.
func provokeUncountedQuota(t *testing.T, ns string) func() error {
	quota := newQuota(ns, corev1.ResourceList{"count/configmaps": resource.MustParse("100")})
	mustCreate(t, quota)
	create := creation(t, newConfigMap(ns))
	return func() error {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, nil
		if err := cluster.Status().Update(t.Context(), quota); err != nil {
			return err
		}
		return create()
	}
}

func provokePodSecurity(t *testing.T, ns string) func() error {
	labels := client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	mustPatch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, labels)
	return creation(t, newPod(ns))
}

// amounts returns an amount of CPU, and one of memory unless it is empty.
func amounts(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func provokeLimitRange(limit corev1.LimitRangeItem) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		limit.Type = corev1.LimitTypeContainer
		mustCreate(t, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{limit}},
		})
		return provokePod(func(pod *corev1.PodSpec) {
			pod.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("500m", "1Gi"), Limits: amounts("1", "1Gi")}
		})(t, ns)
	}
}

func provokeRuntimeClassConflict(t *testing.T, ns string) func() error {
	class := &nodev1.RuntimeClass{Handler: "sandbox", Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"sandbox": "true"}}}
	class.GenerateName = "test-"
	mustCreate(t, class)
	return provokePod(func(pod *corev1.PodSpec) {
		pod.RuntimeClassName, pod.NodeSelector = &class.Name, map[string]string{"sandbox": "false"}
	})(t, ns)
}

// provokePolicy applies a policy to the namespace's ConfigMaps.
func provokePolicy(
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec, parameters *admissionregistrationv1.ParamRef,
) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		spec.MatchConstraints = &admissionregistrationv1.MatchResources{
			NamespaceSelector: onlyNamespace(ns),
			ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: createConfigMaps()}},
		}
		mustCreate(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: spec})
		mustCreate(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        ns,
				ParamRef:          parameters,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		})
		return creation(t, newConfigMap(ns))
	}
}

func onlyNamespace(ns string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}
}

func createConfigMaps() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}
}

// provokeWebhook denies the namespace's ConfigMaps with this status.
func provokeWebhook(denial metav1.Status) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			review := &admissionv1.AdmissionReview{}
			if err := json.NewDecoder(request.Body).Decode(review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &denial}
			_ = json.NewEncoder(w).Encode(review)
		}))
		t.Cleanup(server.Close)
		return provokeWebhookAt(server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))(t, ns)
	}
}

func provokeWebhookAt(url string, certificate []byte) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		mustCreate(t, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:                    "test.yardmaster.dev",
				ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: certificate},
				Rules:                   []admissionregistrationv1.RuleWithOperations{createConfigMaps()},
				NamespaceSelector:       onlyNamespace(ns),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
				AdmissionReviewVersions: []string{"v1"},
				TimeoutSeconds:          new(int32(5)),
			}},
		})
		return creation(t, newConfigMap(ns))
	}
}

// clientAs returns a client of a user who has only the permissions given.
func clientAs(t *testing.T, user, ns string, rules ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user}, Rules: rules}
	mustCreate(t, role)
	mustCreate(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user}
	return newClient(t, as)
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme(), Mapper: cluster.RESTMapper()})
	require.NoError(t, err)
	return c
}

func provokeEscalation(t *testing.T, ns string) func() error {
	jane := clientAs(t, "jane", ns, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create"}})
	return func() error {
		return jane.Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "more"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}},
		}, client.DryRunAll)
	}
}

func provokeTerminatingNamespace(t *testing.T, ns string) func() error {
	blocker := newConfigMap(ns)
	blocker.SetFinalizers([]string{"test.yardmaster.dev/blocker"})
	mustCreate(t, blocker)
	t.Cleanup(func() {
		if err := cluster.Patch(context.Background(), blocker, client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Error(err)
		}
	})
	mustDelete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	other := newConfigMap(ns)
	other.SetName("other")
	return creation(t, other)
}

// provokeUndeclaredField applies a field that the API server does not know, as a client of a later version
// of Kubernetes does.
func provokeUndeclaredField(t *testing.T, ns string) func() error {
	return func() error {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": "a"}, "unknown": true,
		}}
		return cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"))
	}
}
