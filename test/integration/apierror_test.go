package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
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
	for title, test := range map[string]struct {
		// provoke prepares the namespace, and returns a request that the API server refuses there.
		provoke func(t *testing.T, ns string) func() error
		message string
		want    decision.Class
	}{
		"exceeded quota":                   {provoke(configMap, quota(`count/configmaps: "0"`)), "exceeded quota: ", decision.QuotaExceeded},
		"quota whose usage is not counted": {provokeUncountedQuota, "status unknown for quota: ", decision.QuotaExceeded},
		"quota on an unset resource":       {provoke(pod(""), quota(`limits.cpu: "4"`)), "failed quota: ", decision.QuotaExceeded},
		"PodSecurity":                      {provokePodSecurity, "is forbidden: violates PodSecurity ", decision.PolicyDenied},
		"LimitRange with a minimum":        {provokeLimitRange(`min: {cpu: "2"}`), "is forbidden: minimum cpu ", decision.PolicyDenied},
		"LimitRange with a maximum":        {provokeLimitRange(`max: {cpu: 100m}`), "is forbidden: maximum cpu ", decision.PolicyDenied},
		"LimitRange with a ratio": {
			provokeLimitRange(`maxLimitRequestRatio: {cpu: "1"}`), "is forbidden: cpu max limit to request ratio ", decision.PolicyDenied,
		},
		"LimitRange with two violations": {provokeLimitRange(`max: {cpu: 100m, memory: 1Mi}`), "is forbidden: [maximum ", decision.PolicyDenied},
		"RuntimeClass that does not exist": {
			provoke(pod("runtimeClassName: none, ")), "is forbidden: pod rejected: RuntimeClass", decision.PolicyDenied,
		},
		"RuntimeClass for other nodes": {
			provoke(pod(`runtimeClassName: $NS, nodeSelector: {sandbox: "false"}, `), runtimeClass),
			"is forbidden: conflict: runtimeClass.", decision.PolicyDenied,
		},
		"PriorityClass that does not exist": {
			provoke(pod("priorityClassName: none, ")), "is forbidden: no PriorityClass with name ", decision.PolicyDenied,
		},
		"service account that doesn't exist": {
			provoke(pod("serviceAccountName: none, ")), "is forbidden: error looking up service account ", decision.ServiceAccountMissing,
		},
		"policy that denies by default": {
			provoke(configMap, policy(`validations: [{expression: "false"}]`), binding("")), "ValidatingAdmissionPolicy '", decision.PolicyDenied,
		},
		"policy without its parameters": {
			provoke(configMap, policy(`validations: [{expression: "true"}], paramKind: {apiVersion: v1, kind: ConfigMap}`),
				binding(`, paramRef: {name: none, namespace: default, parameterNotFoundAction: Deny}`)),
			"denied request: failed to configure binding", decision.PolicyDenied,
		},
		"webhook that denies without a reason": {provokeWebhook(metav1.Status{}), "denied the request", decision.PolicyDenied},
		"webhook that denies as Conflict": {
			provokeWebhook(metav1.Status{Reason: metav1.StatusReasonConflict, Code: http.StatusConflict, Message: "as requested"}),
			"denied the request: as requested", decision.PolicyDenied,
		},
		"webhook that cannot be called": {provoke(configMap, webhookAt("https://127.0.0.1:1", nil)), "failed calling webhook", decision.Unavailable},

		"grant escalation":                     {provokeEscalation, `is forbidden: user "jane" (groups=`, decision.PermissionMissing},
		"terminating namespace":                {provokeTerminatingNamespace, "because it is being terminated", decision.NamespaceTerminating},
		"RuntimeClass with an invalid name":    {provoke(pod("runtimeClassName: a/b, ")), `invalid resource name "a/b"`, decision.Invalid},
		"service account with an invalid name": {provoke(pod("serviceAccountName: a/b, ")), `invalid resource name "a/b"`, decision.Invalid},
		"undeclared field":                     {provokeUndeclaredField, "field not declared in schema", decision.Invalid},
	} {
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
			require.Equal(t, test.want, decision.ClassOf(last))
		})
	}
}

// Objects whose namespace or unique name is $NS.
const (
	configMap    = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $NS, name: a}}`
	runtimeClass = `{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: $NS}, handler: a, scheduling: {nodeSelector: {sandbox: "true"}}}`
	// ofConfigMaps are fields of a policy or a webhook for the ConfigMaps of the namespace.
	ofConfigMaps = `namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}},
		%s: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]`
)

func pod(fields string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {namespace: $NS, name: a}, spec: {` + fields + `containers: [{name: main, image: "busybox:1.37",
		resources: $RESOURCES}]}}`
}

func quota(hard string) string {
	return `{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: $NS, name: quota}, spec: {hard: {` + hard + `}}}`
}

func policy(spec string) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: $NS}, spec: {` + spec + `,
		matchConstraints: {` + fmt.Sprintf(ofConfigMaps, "resourceRules") + `}}}`
}

func binding(more string) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: $NS},
		spec: {policyName: $NS, validationActions: [Deny]` + more + `}}`
}

func webhookAt(url string, authority []byte) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: $NS}, webhooks: [{
		name: test.yardmaster.dev, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 5,
		clientConfig: {url: "` + url + `", caBundle: "` + base64.StdEncoding.EncodeToString(authority) + `"}, ` + fmt.Sprintf(ofConfigMaps, "rules") + `}]}`
}

// objectOf returns the object of a manifest for the namespace.
func objectOf(t *testing.T, manifest, ns string) *unstructured.Unstructured {
	t.Helper()
	object, err := decode([]byte(strings.ReplaceAll(strings.ReplaceAll(manifest, "$NS", ns), "$RESOURCES", "{}")))
	require.NoError(t, err)
	return object
}

// provoke creates objects, and returns a request that submits another one to admission without storing it.
func provoke(manifest string, before ...string) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		for _, other := range before {
			mustCreate(t, objectOf(t, other, ns))
		}
		object := objectOf(t, manifest, ns)
		return func() error { return cluster.Create(t.Context(), object.DeepCopy(), client.DryRunAll) }
	}
}

// provokeUncountedQuota removes the usage from a quota's status, as it is before the quota's
// controller has counted for the first time.
func provokeUncountedQuota(t *testing.T, ns string) func() error {
	create, counted := provoke(configMap, quota(`count/configmaps: "100"`))(t, ns), &corev1.ResourceQuota{}
	return func() error {
		if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "quota"}, counted); err != nil {
			return err
		}
		counted.Status.Hard, counted.Status.Used = counted.Spec.Hard, nil
		if err := cluster.Status().Update(t.Context(), counted); err != nil {
			return err
		}
		return create()
	}
}

func provokePodSecurity(t *testing.T, ns string) func() error {
	labels := client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	mustPatch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, labels)
	return provoke(pod(""))(t, ns)
}

func provokeLimitRange(limit string) func(*testing.T, string) func() error {
	const resources = `{requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: "1", memory: 1Gi}}`
	return provoke(strings.Replace(pod(""), "$RESOURCES", resources, 1),
		`{apiVersion: v1, kind: LimitRange, metadata: {namespace: $NS, name: a}, spec: {limits: [{type: Container, `+limit+`}]}}`)
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
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		return provoke(configMap, webhookAt(server.URL, authority))(t, ns)
	}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme(), Mapper: cluster.RESTMapper()})
	require.NoError(t, err)
	return c
}

func provokeEscalation(t *testing.T, ns string) func() error {
	role := func(name, rule string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: $NS, name: ` + name + `}, rules: [` + rule + `]}`
	}
	mustCreate(t, objectOf(t, role("jane", `{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [create]}`), ns))
	mustCreate(t, objectOf(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: $NS, name: jane},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jane},
		subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}`, ns))
	jane, more := impersonate(t, "jane"), objectOf(t, role("more", `{apiGroups: [""], resources: [secrets], verbs: [get]}`), ns)
	return func() error { return jane.Create(t.Context(), more.DeepCopy(), client.DryRunAll) }
}

func provokeTerminatingNamespace(t *testing.T, ns string) func() error {
	blocker := objectOf(t, configMap, ns)
	blocker.SetFinalizers([]string{"test.yardmaster.dev/blocker"})
	mustCreate(t, blocker)
	t.Cleanup(func() {
		require.NoError(t, cluster.Patch(context.Background(), blocker, client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":null}}`))))
	})
	mustDelete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	return provoke(strings.Replace(configMap, "name: a", "name: other", 1))(t, ns)
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
