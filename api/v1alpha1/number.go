package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// Number is a number as it was written, 0.7 or 2. It is no float, whose last digits would
// depend on who reads it.
//
// +kubebuilder:validation:Type=number
type Number string

// MarshalJSON writes the number without quotes.
func (n Number) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("0"), nil
	}
	return []byte(n), nil
}

// UnmarshalJSON takes a number, and nothing else.
func (n *Number) UnmarshalJSON(raw []byte) error {
	var number json.Number
	if err := json.Unmarshal(raw, &number); err != nil || len(raw) == 0 || raw[0] == '"' {
		return fmt.Errorf("%s is no number", raw)
	}
	*n = Number(number)
	return nil
}
