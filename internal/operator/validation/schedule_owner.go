package validation

import (
	"context"
	"encoding/json"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// scheduleOwnerHandler records in the template of sessions the user who created or last changed it: the sessions act for
// this user. It decodes only the template: the API server has not validated the object yet.
type scheduleOwnerHandler struct{}

// Handle sets userContext of the template to the requesting user, except displayName, if the template is new or differs
// from the stored one. Otherwise it keeps the stored value.
func (scheduleOwnerHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	template, err := readSessionTemplate(request.Object.Raw)
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case template == nil:
		return admission.Allowed("")
	}
	stored := map[string]any(nil)
	if request.Operation == admissionv1.Update {
		if stored, err = readSessionTemplate(request.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	given, storedContext := template[userContextField], stored[userContextField]
	delete(template, userContextField)
	delete(stored, userContextField)
	isUnchanged := stored != nil && equality.Semantic.DeepEqual(template, stored)
	if isUnchanged && (given == nil || equality.Semantic.DeepEqual(given, storedContext)) {
		if storedContext == nil {
			return admission.Allowed("")
		}
		return setTemplateContext(storedContext)
	}
	raw, err := json.Marshal(given)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return setTemplateContext(creatorContext(&request.UserInfo, raw))
}

const userContextField = "userContext"

// readSessionTemplate returns spec.agenticSession.spec of a Schedule, nil if it is not an object.
func readSessionTemplate(raw []byte) (map[string]any, error) {
	var object struct {
		Spec struct {
			AgenticSession struct {
				Spec any `json:"spec"`
			} `json:"agenticSession"`
		} `json:"spec"`
	}
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	template, _ := object.Spec.AgenticSession.Spec.(map[string]any)
	return template, nil
}

func setTemplateContext(userContext any) admission.Response {
	return admission.Patched("", jsonpatch.NewOperation("add", "/spec/agenticSession/spec/userContext", userContext))
}
