// Package validation validates objects in webhooks where the CRD's rules cannot: rules that need the previous version of the object,
// or a step merged into its template.
//
// It defines no rules. They are in the pure packages that the controllers use too: a cluster without webhooks reports the same errors
// in conditions.
package validation

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

// specValidator validates the objects of one kind when their spec is created or changed.
type specValidator[T client.Object] struct {
	kind    string
	webhook string
	// specOf returns the part of an object that is validated.
	specOf func(T) any
	// validate and warn check a spec. warn is optional.
	validate func(T) field.ErrorList
	warn     func(context.Context, T) admission.Warnings
	// try checks a spec that validate accepts with requests to the API server, if the object is new or needsTry returns true for a
	// change. Both are optional.
	try      func(context.Context, T) (admission.Warnings, field.ErrorList)
	needsTry func(before, after T) bool
	// validateChange and warnChange check the change from one spec to the next. Both are optional.
	validateChange func(before, after T) field.ErrorList
	warnChange     func(before, after T) admission.Warnings
}

// Setup adds the webhook to the manager.
func (v *specValidator[T]) Setup(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(webhook.ValidatingPath(v.webhook), admission.WithValidator(mgr.GetScheme(), v))
	return nil
}

// ValidateCreate implements admission.Validator.
func (v *specValidator[T]) ValidateCreate(ctx context.Context, object T) (admission.Warnings, error) {
	errs, warnings := v.validate(object), v.warnings(ctx, object)
	warnings, errs = v.tried(ctx, object, warnings, errs)
	return warnings, v.invalid(object, errs)
}

// tried adds the result of try, unless the object is invalid anyway.
func (v *specValidator[T]) tried(ctx context.Context, object T, warnings admission.Warnings, errs field.ErrorList) (admission.Warnings, field.ErrorList) {
	if v.try == nil || len(errs) > 0 {
		return warnings, errs
	}
	more, refusals := v.try(ctx, object)
	return append(warnings, more...), refusals
}

// ValidateUpdate implements admission.Validator. It accepts every update that does not change the spec: the controllers must be able
// to write the metadata and status of an object that was created with an earlier version of the rules. An object that is being
// deleted is not validated, because its finalizers must be removable; only the stored object proves the deletion.
func (v *specValidator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if !before.GetDeletionTimestamp().IsZero() || equality.Semantic.DeepEqual(v.specOf(before), v.specOf(after)) {
		return nil, nil
	}
	errs, warnings := v.validate(after), v.warnings(ctx, after)
	if v.validateChange != nil {
		errs = append(errs, v.validateChange(before, after)...)
	}
	if v.warnChange != nil {
		warnings = append(warnings, v.warnChange(before, after)...)
	}
	if v.needsTry != nil && v.needsTry(before, after) {
		warnings, errs = v.tried(ctx, after, warnings, errs)
	}
	return warnings, v.invalid(after, errs)
}

// ValidateDelete implements admission.Validator. No webhook is registered for deletions.
func (*specValidator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (v *specValidator[T]) warnings(ctx context.Context, object T) admission.Warnings {
	if v.warn == nil {
		return nil
	}
	return v.warn(ctx, object)
}

func (v *specValidator[T]) invalid(object T, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(v.kind).GroupKind(), object.GetName(), errs)
}
