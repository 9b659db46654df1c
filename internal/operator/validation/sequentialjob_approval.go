package validation

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
)

var sequentialJobs = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "sequentialjobs"}

// validatedParts are the parts of a SequentialJob that users change.
type validatedParts struct {
	Spec     v1alpha1.SequentialJobSpec
	Approval string
}

// authorizeApprovalChange refuses an approval in the name of another user.
func authorizeApprovalChange(ctx context.Context, before, after *v1alpha1.SequentialJob) error {
	if before.Annotations[v1alpha1.AnnotationApproval] == after.Annotations[v1alpha1.AnnotationApproval] {
		return nil
	}
	return authorizeApproval(ctx, after)
}

func authorizeApproval(ctx context.Context, sj *v1alpha1.SequentialJob) error {
	if sj.Annotations[v1alpha1.AnnotationApproval] == "" {
		return nil
	}
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	user := request.UserInfo.Username
	switch approval := sequentialjob.ReadApproval(sj); {
	case approval == nil:
		return apierrors.NewBadRequest(fmt.Sprintf(`annotation %s must be JSON such as {"run": 1, "step": "deploy", "by": %q}`, v1alpha1.AnnotationApproval, user))
	case approval.By != user:
		return apierrors.NewForbidden(sequentialJobs, sj.Name, fmt.Errorf("user %q cannot approve step %q as %q", user, approval.Step, approval.By))
	}
	return nil
}
