//! Strings and arrays of strings.

use crate::error::Failure;
use jni::Env;
use jni::objects::{JObjectArray, JString};

/// Converts a string of Java; `what` names it in the error for `null`.
pub(crate) fn string(env: &Env<'_>, text: &JString<'_>, what: &str) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::Argument(format!("{what}: expected a string, found null")));
    }
    Ok(text.try_to_string(env)?)
}

/// Converts an array of strings.
pub(crate) fn strings(
    env: &mut Env<'_>,
    array: &JObjectArray<'_, JString<'_>>,
    what: &str,
) -> Result<Vec<String>, Failure> {
    if array.is_null() {
        return Err(Failure::Argument(format!("{what}: expected an array, found null")));
    }
    let mut texts = Vec::new();
    for index in 0..array.len(env)? {
        // A frame for each string, because local references are few.
        let text = env.with_local_frame(4, |env| {
            let text = array.get_element(env, index)?;
            string(env, &text, what)
        });
        texts.push(text?);
    }
    Ok(texts)
}

/// Creates an array of strings.
pub(crate) fn array<'local, T: AsRef<str>>(
    env: &mut Env<'local>,
    texts: &[T],
) -> Result<JObjectArray<'local, JString<'local>>, Failure> {
    let array = JObjectArray::<JString>::new(env, texts.len(), JString::null())?;
    for (index, text) in texts.iter().enumerate() {
        env.with_local_frame(4, |env| {
            let text = env.new_string(text)?;
            array.set_element(env, index, &text)
        })?;
    }
    Ok(array)
}
