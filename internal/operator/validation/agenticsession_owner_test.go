package validation

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// reviewer answers SubjectAccessReviews.
type reviewer struct {
	allowed bool
	err     error
	// reviews that were requested.
	reviews []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviewer) validator() *specValidator[*v1alpha1.AgenticSession] {
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review := object.(*authorizationv1.SubjectAccessReview)
			r.reviews = append(r.reviews, review.Spec)
			review.Status.Allowed = r.allowed
			return r.err
		},
	})
	return agenticSessionValidator(c, c)
}

func TestOnlyTheOwnerAndAdministratorsChangeASession(t *testing.T) {
	change := func(s *v1alpha1.AgenticSession) {
		s.Spec.Rerun, s.Spec.Agent.MCPServers = &v1alpha1.Rerun{ID: "2"}, v1alpha1.MCPServers{Disabled: []string{"web"}}
	}
	withoutOwner := func(s *v1alpha1.AgenticSession) { s.Spec.UserContext = nil }
	const isForbidden = `agenticsessions.yardmaster.dev "fix" is forbidden: user `
	for title, row := range map[string]struct {
		before, change func(*v1alpha1.AgenticSession)
		user           string
		allowed        bool
		err            error
		want           string
		wantReviews    int
	}{
		"the owner": {user: "ann", change: change},
		"another user": {user: "bob", change: change, wantReviews: 1, want: isForbidden + `"bob" cannot change spec.agent, spec.rerun: ` +
			`the session belongs to user "ann", so only this user and those with the verb "administer" on agenticsessions.yardmaster.dev ` +
			`can change the spec; create a session of your own`},
		"another user who removes a field": {
			user: "bob", before: change, change: func(s *v1alpha1.AgenticSession) { s.Spec.Agent.MCPServers = v1alpha1.MCPServers{} }, wantReviews: 1,
			want: isForbidden + `"bob" cannot change spec.agent: `,
		},
		"another user who claims to be the owner": {
			user: "bob", change: func(s *v1alpha1.AgenticSession) { s.Spec.UserContext = &v1alpha1.UserContext{UserID: "bob"} }, wantReviews: 1,
			want: isForbidden + `"bob" cannot change spec.userContext: the session belongs to user "ann"`,
		},
		"a user whose name begins with the owner's": {user: "ann2", change: change, wantReviews: 1, want: isForbidden + `"ann2"`},
		"an administrator":                          {user: "root", change: change, allowed: true, wantReviews: 1},
		"a session without an owner": {user: "bob", before: withoutOwner, change: change, wantReviews: 1, want: isForbidden + `"bob" cannot change ` +
			`spec.agent, spec.rerun: the session has no owner, because it was created without the webhook, so only users with the verb "administer"`},
		"a user without a name and a session without an owner": {user: "", before: withoutOwner, change: change, wantReviews: 1, want: isForbidden},
		"an administrator and a session without an owner":      {user: "root", before: withoutOwner, change: change, allowed: true, wantReviews: 1},
		"a review that fails": {
			user: "root", change: change, allowed: true, err: errors.New("no connection"), wantReviews: 1,
			want: `whether "root" has the verb is unknown, try again: no connection`,
		},
		"metadata by another user": {user: "bob", change: func(s *v1alpha1.AgenticSession) {
			s.Labels, s.Annotations, s.Finalizers = map[string]string{"a": "b"}, map[string]string{"a": "b"}, []string{"a/b"}
		}},
	} {
		t.Run(title, func(t *testing.T) {
			before := agenticSession()
			if row.before != nil {
				row.before(before)
			}
			after := before.DeepCopy()
			row.change(after)
			r := reviewer{allowed: row.allowed, err: row.err}
			_, err := r.validator().ValidateUpdate(byUser(t, authenticationv1.UserInfo{Username: row.user}), before, after)
			if (err != nil) != (row.want != "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
			if row.err != nil && !apierrors.IsInternalError(err) {
				t.Errorf("an unknown permission is reported as %v", err)
			}
			if len(r.reviews) != row.wantReviews {
				t.Errorf("%d reviews, want %d", len(r.reviews), row.wantReviews)
			}
		})
	}
}

// An authorizer can decide by every attribute of a user.
func TestAReviewContainsTheWholeUser(t *testing.T) {
	after := agenticSession()
	after.Spec.Rerun = &v1alpha1.Rerun{ID: "2"}
	r := reviewer{allowed: true}
	_, err := r.validator().ValidateUpdate(byUser(t, authenticationv1.UserInfo{
		Username: "bob", UID: "7", Groups: []string{"dev", "ops"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
	}), agenticSession(), after)
	if err != nil {
		t.Fatal(err)
	}
	want := []authorizationv1.SubjectAccessReviewSpec{{
		User: "bob", UID: "7", Groups: []string{"dev", "ops"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "ns", Name: "fix", Verb: "administer", Group: "yardmaster.dev", Version: "v1alpha1", Resource: "agenticsessions",
		},
	}}
	if diff := cmp.Diff(want, r.reviews); diff != "" {
		t.Errorf("reviews (-want, +got):\n%s", diff)
	}
}
