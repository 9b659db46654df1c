package agenticsession

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
)

// fakeAPIServer notes what the API server is asked, and has a quota refuse what is new.
type fakeAPIServer struct {
	requests      []string
	quotaExceeded bool
}

func (a *fakeAPIServer) logRequest(verb string) { a.requests = append(a.requests, verb) }

func (a *fakeAPIServer) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			a.logRequest("get")
			return c.Get(ctx, key, object, options...)
		},
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
		return metav1.ObjectMeta{Name: "fix-session", Namespace: "ns", Labels: map[string]string{session.LabelSessionUID: uid}}
	}
	account := func(uid string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metadata(uid)}
	}
	policy := &networkingv1.NetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: metadata("1")}
	tests := map[string]struct {
		attempt int32
		there   []client.Object
		full    bool
		object  session.Object
		want    string
		refused session.RefusalKind
	}{
		"at first there is nothing":                           {1, nil, false, account("1"), "create", ""},
		"an operator that was killed had made it":             {1, []client.Object{account("1")}, false, account("1"), "create get apply", ""},
		"a quota has no room, and needs none for it":          {1, []client.Object{account("1")}, true, account("1"), "create get apply", ""},
		"a quota has no room":                                 {1, nil, true, account("1"), "create get", session.RefusedQuota},
		"its name is taken":                                   {1, []client.Object{account("2")}, false, account("1"), "create get", session.RefusedForeign},
		"a later attempt finds it there":                      {2, []client.Object{account("1")}, false, account("1"), "get apply", ""},
		"something of it may have to be left out at a change": {1, nil, false, policy, "get apply", ""},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			a := &fakeAPIServer{quotaExceeded: test.full}
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.there...).WithInterceptorFuncs(a.interceptors()).Build()
			r := &Reconciler{client: c, live: c, options: Options{Children: emptyCache{}}}
			now := s.DeepCopy()
			now.Status.Attempt = test.attempt
			refusal, err := r.applyObject(t.Context(), now, test.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, strings.Join(a.requests, " ")); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if kind := classOfRefusal(refusal); kind != test.refused {
				t.Errorf("refused as %q, want %q", kind, test.refused)
			}
		})
	}
}

func classOfRefusal(refusal *session.Refusal) session.RefusalKind {
	if refusal == nil {
		return ""
	}
	return refusal.Kind
}

// emptyCache is a cache that has seen nothing yet.
type emptyCache struct{ cache.Cache }

func (emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}
