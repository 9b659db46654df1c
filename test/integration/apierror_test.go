package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// TestClassesOfErrorsOfTheAPIServer provokes each error that apierror classifies. A row
// with a message is repeated until the API server answers with it: quotas, policies and other
// configuration take effect with a delay.
func TestClassesOfErrorsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		provoke func(t *testing.T) func() error
		message string
		want    decision.Class
	}{
		"exceeded quota":                     {provokeExceededQuota, "exceeded quota: ", decision.QuotaExceeded},
		"quota whose usage is not counted":   {provokeUncountedQuota, "status unknown for quota: ", decision.QuotaExceeded},
		"quota on an unset resource":         {provokeFailedQuota, "failed quota: ", decision.QuotaExceeded},
		"PodSecurity":                        {provokePodSecurity, "is forbidden: violates PodSecurity ", decision.PolicyDenied},
		"LimitRange with a minimum":          {provokeLimitRange(minimumCPU), "is forbidden: minimum cpu ", decision.PolicyDenied},
		"LimitRange with a maximum":          {provokeLimitRange(maximumCPU), "is forbidden: maximum cpu ", decision.PolicyDenied},
		"LimitRange with a ratio":            {provokeLimitRange(maximumCPURatio), "is forbidden: cpu max limit to request ratio ", decision.PolicyDenied},
		"LimitRange with two violations":     {provokeLimitRange(maximumCPU, maximumMemory), "is forbidden: [maximum ", decision.PolicyDenied},
		"RuntimeClass that does not exist":   {provokePod(withRuntimeClass("none")), "is forbidden: pod rejected: RuntimeClass", decision.PolicyDenied},
		"RuntimeClass for other nodes":       {provokeRuntimeClassConflict, "is forbidden: conflict: runtimeClass.", decision.PolicyDenied},
		"PriorityClass that does not exist":  {provokePod(withPriorityClass("none")), "is forbidden: no PriorityClass with name ", decision.PolicyDenied},
		"service account that doesn't exist": {provokePod(withServiceAccount("none")), "is forbidden: error looking up service account ", decision.ServiceAccountMissing},

		"policy that denies by default":   {provokePolicy(nil), "ValidatingAdmissionPolicy '", decision.PolicyDenied},
		"policy that denies as Forbidden": {provokePolicy(new(metav1.StatusReasonForbidden)), "ValidatingAdmissionPolicy '", decision.PolicyDenied},
		"policy that denies as too large": {provokePolicy(new(metav1.StatusReasonRequestEntityTooLarge)), "ValidatingAdmissionPolicy '", decision.PolicyDenied},
		"policy without its parameters":   {provokePolicyWithoutParameters, "denied request: failed to configure binding", decision.PolicyDenied},

		"webhook that denies without a reason": {provokeWebhook(metav1.Status{}), "denied the request", decision.PolicyDenied},
		"webhook that denies as Forbidden":     {provokeWebhook(status(metav1.StatusReasonForbidden, 403)), "denied the request: as requested", decision.PolicyDenied},
		"webhook that denies as Conflict":      {provokeWebhook(status(metav1.StatusReasonConflict, 409)), "denied the request: as requested", decision.PolicyDenied},
		"webhook that denies as Invalid":       {provokeWebhook(status(metav1.StatusReasonInvalid, 422)), "denied the request: as requested", decision.PolicyDenied},
		"webhook that cannot be called":        {provokeUnavailableWebhook, "failed calling webhook", decision.Unavailable},

		"missing permission":                   {provokeMissingPermission, `is forbidden: User "jane" cannot `, decision.PermissionMissing},
		"grant escalation":                     {provokeEscalation, `is forbidden: user "jane" (groups=`, decision.PermissionMissing},
		"unknown credentials":                  {provokeUnauthorized, "", decision.PermissionMissing},
		"terminating namespace":                {provokeTerminatingNamespace, "because it is being terminated", decision.NamespaceTerminating},
		"missing namespace":                    {provokeMissingNamespace, "namespaces \"none\" not found", decision.NotFound},
		"missing object":                       {provokeMissingObject, "", decision.NotFound},
		"name taken":                           {provokeTakenName, "", decision.AlreadyExists},
		"changed object":                       {provokeConflict, "", decision.Conflict},
		"invalid object":                       {provokePod(withoutContainers), "", decision.Invalid},
		"unknown field":                        {provokeUnknownField, "unknown field", decision.Invalid},
		"RuntimeClass with an invalid name":    {provokePod(withRuntimeClass("a/b")), `invalid resource name "a/b"`, decision.Invalid},
		"service account with an invalid name": {provokePod(withServiceAccount("a/b")), `invalid resource name "a/b"`, decision.Invalid},
		"PriorityClass with an invalid name":   {provokePod(withPriorityClass("a/b")), "is forbidden: no PriorityClass with name ", decision.PolicyDenied},

		"undeclared field":    {provokeUndeclaredField, "field not declared in schema", decision.Invalid},
		"object too large":    {provokeTooLarge, "", decision.Invalid},
		"old resourceVersion": {provokeExpired, "too old", decision.Expired},
		"deadline exceeded":   {provokeDeadline, "", decision.Timeout},
		"server unreachable":  {provokeUnreachable, "connection refused", decision.Unavailable},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			attempt := test.provoke(t)
			var last error
			if err := poll.UntilNil(t.Context(), func() error {
				if last = attempt(); last == nil || !strings.Contains(last.Error(), test.message) {
					return fmt.Errorf("want an error with %q, got: %w", test.message, last)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got := decision.ClassOf(last); got != test.want {
				t.Errorf("the class of %q is %q, want %q", last, got, test.want)
			}
		})
	}
}

func newPod(ns string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.GenerateName = ns, "a-"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1.37"}}
	return pod
}

func newConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// createDryRun submits the object to admission without storing it.
func createDryRun(t *testing.T, object client.Object) error {
	t.Helper()
	return cluster.Create(t.Context(), object, client.DryRunAll)
}

func provokePod(change func(*corev1.Pod)) func(*testing.T) func() error {
	return func(t *testing.T) func() error {
		ns := namespace(t)
		return func() error {
			pod := newPod(ns)
			change(pod)
			return createDryRun(t, pod)
		}
	}
}

func withRuntimeClass(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.RuntimeClassName = &name }
}

func withPriorityClass(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.PriorityClassName = name }
}

func withServiceAccount(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = name }
}

// withoutContainers also avoids the service account, which is checked before the Pod is.
func withoutContainers(pod *corev1.Pod) { pod.Spec.Containers = nil }

func newQuota(ns string, hard corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "quota-"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}

func provokeExceededQuota(t *testing.T) func() error {
	ns := namespace(t)
	mustCreate(t, newQuota(ns, corev1.ResourceList{"count/configmaps": resource.MustParse("0")}))
	return func() error { return createDryRun(t, newConfigMap(ns, "a")) }
}

// provokeUncountedQuota removes the usage from a quota's status, as it is before the quota's
// controller has counted for the first time.
func provokeUncountedQuota(t *testing.T) func() error {
	ns := namespace(t)
	quota := newQuota(ns, corev1.ResourceList{"count/configmaps": resource.MustParse("100")})
	mustCreate(t, quota)
	return func() error {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, nil
		if err := cluster.Status().Update(t.Context(), quota); err != nil {
			return err
		}
		return createDryRun(t, newConfigMap(ns, "a"))
	}
}

func provokeFailedQuota(t *testing.T) func() error {
	ns := namespace(t)
	mustCreate(t, newQuota(ns, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("4")}))
	return func() error { return createDryRun(t, newPod(ns)) }
}

func provokePodSecurity(t *testing.T) func() error {
	ns := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	return func() error { return createDryRun(t, newPod(ns)) }
}

func minimumCPU(limit *corev1.LimitRangeItem) {
	limit.Min = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
}

func maximumCPU(limit *corev1.LimitRangeItem) {
	limit.Max = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
}

func maximumMemory(limit *corev1.LimitRangeItem) {
	limit.Max[corev1.ResourceMemory] = resource.MustParse("1Mi")
}

func maximumCPURatio(limit *corev1.LimitRangeItem) {
	limit.MaxLimitRequestRatio = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
}

func provokeLimitRange(changes ...func(*corev1.LimitRangeItem)) func(*testing.T) func() error {
	return func(t *testing.T) func() error {
		ns := namespace(t)
		limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "limits"}}
		limit := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
		for _, change := range changes {
			change(&limit)
		}
		limits.Spec.Limits = []corev1.LimitRangeItem{limit}
		mustCreate(t, limits)
		return func() error {
			pod := newPod(ns)
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			}
			return createDryRun(t, pod)
		}
	}
}

func provokeRuntimeClassConflict(t *testing.T) func() error {
	class := &nodev1.RuntimeClass{Handler: "sandbox", Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"sandbox": "true"}}}
	class.GenerateName = "test-"
	mustCreate(t, class)
	return provokePod(func(pod *corev1.Pod) {
		pod.Spec.RuntimeClassName = &class.Name
		pod.Spec.NodeSelector = map[string]string{"sandbox": "false"}
	})(t)
}

// provokePolicy denies the namespace's ConfigMaps with this reason.
func provokePolicy(reason *metav1.StatusReason) func(*testing.T) func() error {
	return func(t *testing.T) func() error {
		return provokePolicyWith(t, admissionregistrationv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Reason: reason}},
		}, nil)
	}
}

func provokePolicyWithoutParameters(t *testing.T) func() error {
	return provokePolicyWith(t, admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind:   &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
	}, &admissionregistrationv1.ParamRef{Name: "none", Namespace: "default", ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)})
}

func provokePolicyWith(t *testing.T, spec admissionregistrationv1.ValidatingAdmissionPolicySpec, parameters *admissionregistrationv1.ParamRef) func() error {
	ns := namespace(t)
	spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: onlyNamespace(ns),
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: createConfigMaps()}},
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: spec}
	mustCreate(t, policy)
	mustCreate(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        ns,
			ParamRef:          parameters,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	return func() error { return createDryRun(t, newConfigMap(ns, "a")) }
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

func status(reason metav1.StatusReason, code int32) metav1.Status {
	return metav1.Status{Reason: reason, Code: code, Message: "as requested"}
}

// provokeWebhook denies the namespace's ConfigMaps with this status.
func provokeWebhook(denial metav1.Status) func(*testing.T) func() error {
	return func(t *testing.T) func() error {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			review := &admissionv1.AdmissionReview{}
			raw, err := io.ReadAll(request.Body)
			if err == nil {
				err = json.Unmarshal(raw, review)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &denial}
			_ = json.NewEncoder(w).Encode(review)
		}))
		t.Cleanup(server.Close)
		return provokeWebhookAt(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	}
}

func provokeUnavailableWebhook(t *testing.T) func() error {
	return provokeWebhookAt(t, "https://127.0.0.1:1", nil)
}

func provokeWebhookAt(t *testing.T, url string, certificate []byte) func() error {
	ns := namespace(t)
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
	return func() error { return createDryRun(t, newConfigMap(ns, "a")) }
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
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func provokeMissingPermission(t *testing.T) func() error {
	ns := namespace(t)
	jane := clientAs(t, "jane", ns)
	return func() error { return jane.Create(t.Context(), newConfigMap(ns, "a"), client.DryRunAll) }
}

func provokeEscalation(t *testing.T) func() error {
	ns := namespace(t)
	jane := clientAs(t, "jane", ns, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create"}})
	return func() error {
		return jane.Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "more"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}},
		}, client.DryRunAll)
	}
}

func provokeUnauthorized(t *testing.T) func() error {
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.BearerToken = "unknown"
	c := newClient(t, anonymous)
	return func() error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, &corev1.Pod{})
	}
}

func provokeTerminatingNamespace(t *testing.T) func() error {
	ns := namespace(t)
	blocker := newConfigMap(ns, "blocker")
	blocker.Finalizers = []string{"test.yardmaster.dev/blocker"}
	mustCreate(t, blocker)
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := cluster.Patch(context.Background(), blocker, patch); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	return func() error { return createDryRun(t, newConfigMap(ns, "a")) }
}

func provokeMissingNamespace(t *testing.T) func() error {
	return func() error { return createDryRun(t, newConfigMap("none", "a")) }
}

func provokeMissingObject(t *testing.T) func() error {
	ns := namespace(t)
	return func() error { return cluster.Delete(t.Context(), newConfigMap(ns, "none")) }
}

func provokeTakenName(t *testing.T) func() error {
	ns := namespace(t)
	mustCreate(t, newConfigMap(ns, "a"))
	return func() error { return createDryRun(t, newConfigMap(ns, "a")) }
}

func provokeConflict(t *testing.T) func() error {
	ns := namespace(t)
	stale := newConfigMap(ns, "a")
	mustCreate(t, stale)
	newer := stale.DeepCopy()
	newer.Data = map[string]string{"a": "b"}
	if err := cluster.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	return func() error { return cluster.Update(t.Context(), stale.DeepCopy()) }
}

func provokeUnknownField(t *testing.T) func() error {
	ns := namespace(t)
	mustCreate(t, newConfigMap(ns, "a"))
	return func() error {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"unknown":true}`))
		return cluster.Patch(t.Context(), newConfigMap(ns, "a"), patch, client.FieldValidation(metav1.FieldValidationStrict))
	}
}

// provokeUndeclaredField applies a field that the API server does not know, as a client of a later version
// of Kubernetes does.
func provokeUndeclaredField(t *testing.T) func() error {
	ns := namespace(t)
	return func() error {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": "a"}, "unknown": true,
		}}
		return cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"))
	}
}

func provokeTooLarge(t *testing.T) func() error {
	ns := namespace(t)
	return func() error {
		large := newConfigMap(ns, "a")
		large.Data = map[string]string{"a": strings.Repeat("a", 4<<20)}
		return createDryRun(t, large)
	}
}

// provokeExpired watches from a resourceVersion that the API server no longer has.
func provokeExpired(t *testing.T) func() error {
	watching, err := client.NewWithWatch(config, client.Options{Scheme: cluster.Scheme(), Mapper: cluster.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		events, err := watching.Watch(t.Context(), &v1alpha1.SequentialJobList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "1"}})
		if err != nil {
			return err
		}
		defer events.Stop()
		if event := <-events.ResultChan(); event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		return errors.New("the watch began")
	}
}

func provokeDeadline(t *testing.T) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		return cluster.List(ctx, &corev1.NamespaceList{})
	}
}

func provokeUnreachable(t *testing.T) func() error {
	nowhere := rest.CopyConfig(config)
	nowhere.Host = "https://127.0.0.1:1"
	c := newClient(t, nowhere)
	return func() error { return c.List(t.Context(), &corev1.NamespaceList{}) }
}

// AssertFresh reads only metadata, and needs no permission except get on the object.
func TestAnObjectIsFreshOnlyUntilItChanges(t *testing.T) {
	t.Parallel()
	ns := namespaceWithoutWebhook(t)
	sj := testbuilder.SequentialJob("fresh", ns).Step("a").Obj()
	sj.UID, sj.Spec.Suspend = "", true
	mustCreate(t, sj)
	jane := clientAs(t, "jane", ns, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"sequentialjobs"}, Verbs: []string{"get"},
	})
	current := &v1alpha1.SequentialJob{}
	poll.Until(t, "the operator's own writes to end", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKeyFromObject(sj), current)
		return err == nil && current.Status.ObservedGeneration == current.Generation && kube.AssertFresh(t.Context(), jane, jane, current) == nil
	})
	changed := current.DeepCopy()
	changed.Labels = map[string]string{"changed": "true"}
	if err := cluster.Patch(t.Context(), changed, client.MergeFrom(current)); err != nil {
		t.Fatal(err)
	}
	if err := kube.AssertFresh(t.Context(), jane, jane, current); !errors.Is(err, kube.ErrStale) {
		t.Errorf("after a change, got %v, want %v", err, kube.ErrStale)
	}
}
