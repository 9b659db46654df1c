package validation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// accessReviewTimeout is shorter than the webhook's timeout of 5 s, so that a user learns why the change is refused.
const accessReviewTimeout = 3 * time.Second

var agenticSessions = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "agenticsessions"}

// ownerRule refuses changes of a session's spec by other users than its owner: the session runs in the owner's workspace and under
// the owner's name.
type ownerRule struct {
	// reviews creates SubjectAccessReviews.
	reviews client.Writer
}

// authorizeChange returns an error if the requesting user neither owns the stored session nor has the verb administer. A session
// without an owner can only be changed with the verb.
func (r *ownerRule) authorizeChange(ctx context.Context, before, after *v1alpha1.AgenticSession) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	owner := ptr.Deref(before.Spec.UserContext, v1alpha1.UserContext{}).UserID
	if owner != "" && owner == request.UserInfo.Username {
		return nil
	}
	whose := fmt.Sprintf("the session belongs to user %q, so only this user and those", owner)
	if owner == "" {
		whose = "the session has no owner, because it was created without the webhook, so only users"
	}
	rule := fmt.Sprintf("user %q cannot change %s: %s with the verb %q on %s can change the spec",
		request.UserInfo.Username, strings.Join(changedFields(&before.Spec, &after.Spec), ", "), whose, v1alpha1.VerbAdminister, agenticSessions)
	review := newAccessReview(before, &request.UserInfo)
	ctx, cancel := context.WithTimeout(ctx, accessReviewTimeout)
	defer cancel()
	switch err := r.reviews.Create(ctx, review); {
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("%s; whether %q has the verb is unknown, try again: %w", rule, request.UserInfo.Username, err))
	case review.Status.Allowed && !review.Status.Denied:
		return nil
	default:
		return apierrors.NewForbidden(agenticSessions, before.Name, fmt.Errorf("%s; create a session of your own", rule))
	}
}

// newAccessReview asks whether a user has the verb administer on a session.
func newAccessReview(s *v1alpha1.AgenticSession, user *authenticationv1.UserInfo) *authorizationv1.SubjectAccessReview {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: s.Namespace, Name: s.Name, Verb: v1alpha1.VerbAdminister,
			Group: agenticSessions.Group, Version: v1alpha1.GroupVersion.Version, Resource: agenticSessions.Resource,
		},
	}}
}

// changedFields returns the sorted paths of the spec's fields that differ.
func changedFields(before, after *v1alpha1.AgenticSessionSpec) []string {
	old, changed := fieldsOf(before), fieldsOf(after)
	var paths []string
	for name, value := range changed {
		if !bytes.Equal(value, old[name]) {
			paths = append(paths, "spec."+name)
		}
		delete(old, name)
	}
	for name := range old { // removed fields
		paths = append(paths, "spec."+name)
	}
	slices.Sort(paths)
	return paths
}

func fieldsOf(spec *v1alpha1.AgenticSessionSpec) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	raw, err := json.Marshal(spec)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil { // API types always marshal
		return nil
	}
	return fields
}
