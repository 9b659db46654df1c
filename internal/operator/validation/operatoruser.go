package validation

import (
	"context"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operatorUser is the user that the API server knows the operator as.
type operatorUser struct {
	client client.Writer

	mutex sync.Mutex
	name  string
}

// is reports whether a user is the operator. If the operator's own name cannot be read, no user is.
func (o *operatorUser) is(ctx context.Context, user string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.name == "" {
		ctx, cancel := context.WithTimeout(ctx, accessReviewTimeout)
		defer cancel()
		review := &authenticationv1.SelfSubjectReview{}
		if err := o.client.Create(ctx, review); err != nil {
			return false
		}
		o.name = review.Status.UserInfo.Username
	}
	return o.name != "" && o.name == user
}

// isOfSchedule reports whether the controller of an object is a Schedule.
func isOfSchedule(raw []byte) bool {
	var object struct {
		Metadata struct {
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return false
	}
	return slices.ContainsFunc(object.Metadata.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "Schedule" && owner.Controller != nil && *owner.Controller
	})
}
