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

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"

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
	Object    content
	OldObject content
}

// content is an object as the API server decodes it: numbers without a point are int64.
type content map[string]any

func (c *content) UnmarshalJSON(text []byte) error {
	return kjson.Unmarshal(text, (*map[string]any)(c))
}

// decision is a line of the output.
type decision struct {
	Denied  bool   `json:"denied"`
	Message string `json:"message"`
	Error   string `json:"error"`
	Cost    int64  `json:"cost"`
}

// costed adds up what the evaluations of one request cost, with all variables that they use.
type costed struct {
	cel.ConditionEvaluator
	spent *int64
}

func (c costed) ForInput(
	ctx context.Context, attributes *admission.VersionedAttributes, request *admissionv1.AdmissionRequest,
	bindings cel.OptionalVariableBindings, namespace *corev1.Namespace, budget int64,
) ([]cel.EvaluationResult, int64, error) {
	results, left, err := c.ConditionEvaluator.ForInput(ctx, attributes, request, bindings, namespace, budget)
	if err == nil {
		*c.spent += budget - left
	}
	return results, left, err
}

type policy struct {
	name string
	spec v1.ValidatingAdmissionPolicySpec
}

type compiledPolicy struct {
	validating.Validator
	spent *int64
}

// validator compiles a policy as plugin/policy/validating/plugin.go does. It ends the program for an expression that does
// not compile.
func (p policy) validator() compiledPolicy {
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
	spent := new(int64)
	compiled := func(group []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return costed{compiler.CompileCondition(group, bindings, environment.NewExpressions), spent}
	}
	fail := v1.Fail // an expression that fails is an error here, and never hidden
	return compiledPolicy{validating.NewValidator(
		compiled(validations),
		matchconditions.NewMatcher(compiled(conditions), &fail, "policy", "validate", p.name),
		compiled(nil), compiled(messages), &fail, nil,
	), spent}
}

func object(content content) runtime.Object {
	if content == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: content}
}

func decide(policy compiledPolicy, asked request) decision {
	*policy.spent = 0
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
	result := policy.Validate(context.Background(), resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget/100, nil)
	for _, each := range result.Decisions {
		if each.Evaluation == validating.EvalError {
			return decision{Error: each.Message, Cost: *policy.spent}
		}
		if each.Action == validating.ActionDeny {
			return decision{Denied: true, Message: each.Message, Cost: *policy.spent}
		}
	}
	return decision{Cost: *policy.spent}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	var policies []v1.ValidatingAdmissionPolicy
	validators := map[string]compiledPolicy{}
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
		if err := out.Encode(decide(validators[asked.Policy], asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
