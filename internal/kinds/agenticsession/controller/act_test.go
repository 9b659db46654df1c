package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

// fakeAPIServer records requests, and refuses new objects if quotaExceeded is set.
type fakeAPIServer struct {
	requests      []string
	quotaExceeded bool
}

func (a *fakeAPIServer) logRequest(verb string) { a.requests = append(a.requests, verb) }

// live returns a client that reads from the API server, and not from a cache.
func (a *fakeAPIServer) live(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			a.logRequest("get")
			return c.Get(ctx, key, object, options...)
		},
	})
}

func (a *fakeAPIServer) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			a.logRequest("create")
			if a.quotaExceeded {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, object.GetName(), errors.New("exceeded quota: all"))
			}
			return c.Create(ctx, object, options...)
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			a.logRequest("apply")
			return nil
		},
	}
}

func TestChildObjectsAreCreatedBeforeTheyAreRead(t *testing.T) {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "fix", Namespace: "ns", UID: "1"}}
	metadata := func(uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "fix-session", Namespace: "ns", Labels: map[string]string{agenticsession.LabelSessionUID: uid}}
	}
	account := func(uid string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metadata(uid)}
	}
	policy := &networkingv1.NetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: metadata("1")}
	for title, test := range map[string]struct {
		attempt       int32
		existing      []client.Object
		quotaExceeded bool
		object        decision.Object
		want          string
		wantRefusal   decision.Class
	}{
		"no object exists":                                    {1, nil, false, account("1"), "create", ""},
		"an operator that crashed created it":                 {1, []client.Object{account("1")}, false, account("1"), "create get apply", ""},
		"a quota is exceeded and the object exists":           {1, []client.Object{account("1")}, true, account("1"), "create get apply", ""},
		"a quota is exceeded":                                 {1, nil, true, account("1"), "create get", decision.QuotaExceeded},
		"another owner has the name":                          {1, []client.Object{account("2")}, false, account("1"), "create get", decision.AlreadyExists},
		"a later attempt reads first":                         {2, []client.Object{account("1")}, false, account("1"), "get apply", ""},
		"an object whose fields may be removed is read first": {1, nil, false, policy, "get apply", ""},
	} {
		t.Run(title, func(t *testing.T) {
			a := &fakeAPIServer{quotaExceeded: test.quotaExceeded}
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.existing...).WithInterceptorFuncs(a.interceptors()).Build()
			r := &Reconciler{Clients: kube.Clients{Client: c, Live: a.live(c)}, options: Options{Children: emptyCache{}}}
			now := s.DeepCopy()
			now.Status.Attempt.Attempt = test.attempt
			refusal, err := r.applyObject(t.Context(), now, test.object)
			require.NoError(t, err)
			require.Equal(t, test.want, strings.Join(a.requests, " "))
			require.Equal(t, test.wantRefusal, ptr.Deref(refusal, decision.Refusal{}).Class)
		})
	}
}

// emptyCache is a cache without objects.
type emptyCache struct{ cache.Cache }

func (emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestKnownAddressesOfTheAPIServerRemainUntilOthersAreRead(t *testing.T) {
	var failure error
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiServerName.Namespace, Name: apiServerName.Name},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: service.ObjectMeta}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(service, slice).Build()
	server := newAPIServer(interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if failure != nil {
				return failure
			}
			return c.Get(ctx, key, object, options...)
		},
	}))
	refresh := func(wantChanged, wantErr bool, want string) {
		t.Helper()
		changed, err := server.refresh(t.Context())
		rules, _ := server.rules(t.Context())
		require.True(t, changed == wantChanged && (err != nil) == wantErr && len(rules) == 1 && rules[0].To[0].IPBlock.CIDR == want,
			"changed: %t, error %v, rules %v; want %t, error: %t, %s", changed, err, rules, wantChanged, wantErr, want)
	}

	failure = errors.New("unreachable")
	_, err := server.rules(t.Context())
	require.True(t, err != nil, "a session starts without the addresses although the API server has only failed to return them")
	failure = nil
	refresh(false, false, "10.96.0.1/32")
	for _, failure = range []error{errors.New("unreachable"), apierrors.NewForbidden(schema.GroupResource{}, "", nil)} {
		refresh(false, true, "10.96.0.1/32")
	}
	failure = nil
	service.Spec.ClusterIPs = []string{"10.96.0.2"}
	require.NoError(t, c.Update(t.Context(), service))
	refresh(true, false, "10.96.0.2/32")
	refresh(false, false, "10.96.0.2/32")
}

func TestSessionsStartIfTheOperatorMayNotReadTheAddressesOfTheAPIServer(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	forbidden := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}}
	rules, err := newAPIServer(interceptor.NewClient(c, forbidden)).rules(t.Context())
	require.True(t, err == nil && len(rules) == 0, "got %v and the error %v", rules, err)
}

func TestALargeSessionIsCachedWithoutItsInputs(t *testing.T) {
	text := strings.Repeat("x", kube.LargeBytes)
	newSession := func() *v1alpha1.AgenticSession {
		s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix"}}
		s.Spec.Runner, s.Spec.UserContext, s.Spec.Workspace = "default", &v1alpha1.UserContext{UserID: "ann"}, &v1alpha1.WorkspaceClaim{}
		s.Status.Phase = v1alpha1.SessionRunning
		return s
	}
	for title, enlarge := range map[string]func(*v1alpha1.AgenticSessionSpec){
		"prompt": func(spec *v1alpha1.AgenticSessionSpec) { spec.Prompt = text + "x" },
		"variables": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"A": v1alpha1.EnvironmentValue(text)}
		},
		"repos": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: v1alpha1.GitURL(text), Branch: "main"}}}
		},
		"tool servers": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Agent.MCPServers.Custom = map[string]apiextensionsv1.JSON{"a": {Raw: []byte(`"` + text + `"`)}}
		},
		"disabled tool servers": func(spec *v1alpha1.AgenticSessionSpec) { spec.Agent.MCPServers.Disabled = []string{text, "a"} },
	} {
		t.Run(title, func(t *testing.T) {
			s := newSession()
			enlarge(&s.Spec)
			trimmed, err := TrimSession(s)
			require.NoError(t, err)
			got := trimmed.(*v1alpha1.AgenticSession)
			diff := cmp.Diff(newSession().Spec, got.Spec)
			require.True(t, diff == "" && got.Status.Phase == v1alpha1.SessionRunning, "phase %s, spec (-want, +got):\n%s", got.Status.Phase, diff)
		})
	}
}
