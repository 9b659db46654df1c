package controller

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
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
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
	tests := map[string]struct {
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
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			a := &fakeAPIServer{quotaExceeded: test.quotaExceeded}
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.existing...).WithInterceptorFuncs(a.interceptors()).Build()
			r := &Reconciler{Clients: kube.Clients{Client: c, Live: a.live(c)}, options: Options{Children: emptyCache{}}}
			now := s.DeepCopy()
			now.Status.Attempt.Attempt = test.attempt
			refusal, err := r.applyObject(t.Context(), now, test.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, strings.Join(a.requests, " ")); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if class := classOfRefusal(refusal); class != test.wantRefusal {
				t.Errorf("refused as %q, want %q", class, test.wantRefusal)
			}
		})
	}
}

func classOfRefusal(refusal *decision.Refusal) decision.Class {
	if refusal == nil {
		return ""
	}
	return refusal.Class
}

// emptyCache is a cache without objects.
type emptyCache struct{ cache.Cache }

func (emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}
