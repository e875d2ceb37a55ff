// ValidatingAdmissionPolicies as a filter program: policies in the first line, then requests; decisions out.
//
// It links the validator of kube-apiserver. The CEL environment is that of the oldest supported release, so an
// expression that needs a newer library does not compile.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

var oldest = version.MajorMinor(1, 30)

// request is a line of the input after the first.
type request struct {
	Policy    string
	Operation string
	User      string
	Groups    []string
	Namespace string
	Name      string
	Object    map[string]any
	OldObject map[string]any
}

// decision is a line of the output.
type decision struct {
	Denied  bool   `json:"denied"`
	Message string `json:"message"`
	Error   string `json:"error"`
}

type policy struct {
	name string
	spec v1.ValidatingAdmissionPolicySpec
}

// validator compiles a policy as plugin/policy/validating/plugin.go does. It ends the program for an expression that does
// not compile.
func (p policy) validator() validating.Validator {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	if err != nil {
		log.Fatal(err)
	}
	bindings := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	check := func(expression cel.ExpressionAccessor) {
		if result := compiler.CompileCELExpression(expression, bindings, environment.NewExpressions); result.Error != nil {
			log.Fatalf("%s: %s\n%v", p.name, expression.GetExpression(), result.Error)
		}
	}
	for _, each := range p.spec.Variables {
		variable := &validating.Variable{Name: each.Name, Expression: each.Expression}
		if result := compiler.CompileAndStoreVariable(variable, bindings, environment.NewExpressions); result.Error != nil {
			log.Fatalf("%s: variable %s: %s\n%v", p.name, each.Name, each.Expression, result.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range p.spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.spec.MatchConditions[i]))
	}
	for _, each := range p.spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: each.Expression, Message: each.Message})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: each.MessageExpression})
	}
	for _, group := range [][]cel.ExpressionAccessor{conditions, validations, messages} {
		for _, each := range group {
			check(each)
		}
	}
	compiled := func(group []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return compiler.CompileCondition(group, bindings, environment.NewExpressions)
	}
	fail := v1.Fail // an expression that fails is an error here, and never hidden
	return validating.NewValidator(
		compiled(validations),
		matchconditions.NewMatcher(compiled(conditions), &fail, "policy", "validate", p.name),
		compiled(nil), compiled(messages), &fail, nil,
	)
}

func object(content map[string]any) runtime.Object {
	if content == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: content}
}

func decide(validator validating.Validator, asked request) decision {
	object, old := object(asked.Object), object(asked.OldObject)
	content := asked.Object
	if content == nil {
		content = asked.OldObject
	}
	one := unstructured.Unstructured{Object: content}
	kind := one.GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "any"}
	attributes := admission.NewAttributesRecord(object, old, kind, asked.Namespace, asked.Name, resource, "",
		admission.Operation(asked.Operation), nil, false, &user.DefaultInfo{Name: asked.User, Groups: asked.Groups})
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedObject: object, VersionedOldObject: old, VersionedKind: kind,
	}
	result := validator.Validate(context.Background(), resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget/100, nil)
	for _, each := range result.Decisions {
		if each.Evaluation == validating.EvalError {
			return decision{Error: each.Message}
		}
		if each.Action == validating.ActionDeny {
			return decision{Denied: true, Message: each.Message}
		}
	}
	return decision{}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	var policies []v1.ValidatingAdmissionPolicy
	validators := map[string]validating.Validator{}
	for first := true; lines.Scan(); first = false {
		if first {
			if err := json.Unmarshal(lines.Bytes(), &policies); err != nil {
				log.Fatal(err)
			}
			for _, each := range policies {
				validators[each.Name] = policy{each.Name, each.Spec}.validator()
			}
			continue
		}
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		for _, content := range []map[string]any{asked.Object, asked.OldObject} {
			whole(content)
		}
		if err := out.Encode(decide(validators[asked.Policy], asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

// whole turns numbers without a fraction into int64, as the API server's own decoder does.
func whole(value any) any {
	switch found := value.(type) {
	case map[string]any:
		for key, item := range found {
			found[key] = whole(item)
		}
	case []any:
		for i, item := range found {
			found[i] = whole(item)
		}
	case float64:
		if found == float64(int64(found)) {
			return int64(found)
		}
	}
	return value
}
