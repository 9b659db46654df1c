package adminkeys

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

// adminKeyTest is a Store whose requests fail with the error in failure.
type adminKeyTest struct {
	*Store

	t       *testing.T
	clock   *clocktesting.FakePassiveClock
	failure error
}

func newAdminKeyTest(t *testing.T, objects ...client.Object) *adminKeyTest {
	t.Helper()
	test := &adminKeyTest{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))}
	c := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
			if test.failure != nil {
				return test.failure
			}
			return c.Get(ctx, key, object, o...)
		},
	}).Build()
	test.Store = New(kube.Clients{Client: c, Live: c, Clock: test.clock}, types.NamespacedName{Namespace: "operator", Name: "admin"})
	return test
}

// readKey returns the public key a minute after the last call; empty if the operator has none.
func (a *adminKeyTest) readKey() string {
	a.t.Helper()
	a.clock.SetTime(a.clock.Now().Add(maxAge))
	keys := require.Call(a.Get(a.t.Context())).Succeeds(a.t)
	if keys == nil {
		return ""
	}
	return keys.PublicKey()
}

func adminSecret(key string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: "admin"}, Data: map[string][]byte{keyName: []byte(key)}}
}

func TestTheOperatorCreatesAKeyForWorkersOnceAndReadsAReplacedOne(t *testing.T) {
	secret := adminSecret("")
	test := newAdminKeyTest(t, secret)
	first := test.readKey()
	require.True(t, first != "", "there is no key")
	require.Equal(t, first, test.readKey())
	other := &adminKeyTest{Store: New(test.Clients, test.secret), t: t, clock: test.clock}
	require.Equal(t, first, other.readKey())
	require.NoError(t, test.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	secret.Data = nil
	require.NoError(t, test.Client.Update(t.Context(), secret))
	replaced := test.readKey()
	require.True(t, replaced != "" && replaced != first, "the key is %q after it was removed from the Secret", replaced)
	test.failure = errors.New("the API server does not answer")
	require.Equal(t, replaced, test.readKey())
}

func TestPoolsWorkWithoutAKeyForWorkers(t *testing.T) {
	for title, row := range map[string]struct {
		secret  string
		failure error
	}{
		"an earlier version of the manifests has no Secret": {"", apierrors.NewNotFound(corev1.Resource("secrets"), "admin")},
		"the operator may not read the Secret":              {"", apierrors.NewForbidden(corev1.Resource("secrets"), "admin", errors.New("no"))},
		"the Secret has something else":                     {"x", nil},
	} {
		t.Run(title, func(t *testing.T) {
			test := newAdminKeyTest(t, adminSecret(row.secret))
			test.failure = row.failure
			require.Equal(t, "", test.readKey())
		})
	}
}

func TestPoolsWaitForAKeyForWorkersWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	test := newAdminKeyTest(t, adminSecret(""))
	test.failure = errors.New("the API server does not answer")
	keys, err := test.Get(t.Context())
	require.True(t, keys == nil && err != nil, "keys %v, %v; want an error", keys, err)
}
