package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// Number is a decimal number in the form in which it was written, for example 0.7 or 2. It is not a
// float, because the last digits of a float depend on the program that reads it.
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

// UnmarshalJSON accepts only a JSON number.
func (n *Number) UnmarshalJSON(raw []byte) error {
	var number json.Number
	if err := json.Unmarshal(raw, &number); err != nil || len(raw) == 0 || raw[0] == '"' {
		return fmt.Errorf("%s is not a number", raw)
	}
	*n = Number(number)
	return nil
}
